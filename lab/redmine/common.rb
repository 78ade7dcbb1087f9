# What the scripts of the lab's Redmine experiment share: how they speak to the lab, and the text of issues.
#
# Each line for the lab begins with "lab: "; what else is printed (warnings of gems) the lab passes over. lab/src/redmine/said.rs
# reads the lines.

$stdout.sync = true

def say(*words)
  $stdout.write("lab: #{words.join(' ')}\n")
end

# An error in one line.
def say_error(error)
  say('error', error.class, error.message.gsub(/\s+/, ' ')[0, 500])
end

# Deadlocks and lock waits that took too long: the transaction is undone, and who asked for it repeats it.
REPEATED = [ActiveRecord::Deadlocked, ActiveRecord::LockWaitTimeout].freeze

# Common words, the frequent ones first.
WORDS = %w[
  the of to and in is it that for on with as are this be at from or by not have an was can page user error when after
  before file form list click button value field table server request answer test build version release change login
  password report export import search filter project issue ticket customer invoice order column line number date time
  browser window screen menu text button image link address message email template language translation update delete
  create edit save open close wrong missing slow empty broken double twice never always sometimes still again since
  yesterday please check attached log stack trace line exception timeout memory disk network cache session database
].freeze

# Sentences of so many characters at least, drawn from a source.
def prose(random, characters)
  text = +''
  while text.length < characters
    sentence = Array.new(random.rand(5..14)) { WORDS[(WORDS.length * random.rand**2).to_i] }.join(' ')
    text << ' ' unless text.empty?
    text << sentence.capitalize << '.'
  end
  text
end

def subject(random)
  prose(random, 20)[0, 80]
end
