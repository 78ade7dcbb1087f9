#!/usr/bin/perl
# Makes tests of one engine tests of another: replaces the engine's name in copies of
# the server's tests, of the files they include and of their expected results, in place.
#
#   rename-engine.pl OLD[,OLD...] NEW FILE...
#
# A name is replaced where it stands as a word: ENGINE=InnoDB, 'InnoDB', in comments
# (which tests and results share). It stays where it is no engine's name:
#   - in lines that include a file, and in paths (suite/innodb/..., innodb.inc)
#   - in lines that take the runner's list of combinations apart, in which "innodb" says that InnoDB is loaded
#   - in options (--innodb) and names of mysqltest's variables ($innodb)
#   - before a colon, InnoDB's own messages, which tests tell the runner to expect; before
#     two tabs, SHOW ENGINE INNODB STATUS
# Lines of a result in which InnoDB says that it does OPTIMIZE by other means go, and those
# that are the name of one of its files.
# Options of the engine that have a counterpart get its name (of_variable). Names of
# InnoDB's tables in information_schema, its other variables and its messages stay, and
# a test that lives on them fails: which is to be seen.
use strict;
use warnings;

my ($old, $new, @files) = @ARGV;
die "usage: rename-engine.pl OLD[,OLD...] NEW FILE...\n" unless @files;
my $names = join '|', map quotemeta, split /,/, $old;
my $prefix = lc $new;

# Variables that mean the same in both engines.
my @of_variable = ('lock_wait_timeout', 'snapshot_isolation');

for my $file (@files) {
    open my $in, '<:raw', $file or die "$file: $!\n";
    my @lines = <$in>;
    close $in;
    my $changed = 0;
    for (@lines) {
        next if /^\s*(?:--)?\s*source\b/i || /\$MTR_COMBINATIONS/;
        my $was = $_;
        if (/\toptimize\tnote\tTable does not support optimize/ || /^\S+\.ibd$/) {
            $_ = '';
            $changed = 1;
            next;
        }
        if ($file =~ /\.(?:combinations|opt|cnf)$/) {
            s/(default[-_]storage[-_]engine=)(?:$names)\b/$1$new/gi;
        } else {
            s{(?<![-/\$\@.\w])(?:$names)(?![-/:\w]|\.\w|\t\t)}{$new}gi;
        }
        for my $variable (@of_variable) {
            (my $pattern = $variable) =~ s/_/[-_]/g;
            s/\b(?:$names)([-_])($pattern)\b/$prefix$1$2/gi;
        }
        $changed ||= $_ ne $was;
    }
    next unless $changed;
    open my $out, '>:raw', $file or die "$file: $!\n";
    print $out @lines;
    close $out or die "$file: $!\n";
}
