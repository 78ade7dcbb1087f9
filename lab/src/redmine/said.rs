//! The lines that the scripts in `lab/redmine/` print for the lab. Each begins with `lab: `; what gems print beside that is no line
//! of these.

/// A line for the lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The last migration, and the number of tables.
    Migrated { version: u64, tables: u64 },
    /// References between tables that stand where a plugin asked for one, and the error if it was refused.
    ForeignKeys { stand: u64, error: String },
    /// Projects that were made.
    Projects(u64),
    /// So many issues more are made.
    Made(u64),
    /// The process can be told what to do.
    Ready,
    /// An operation has ended: its beginning and what it took, in microseconds of the machine's monotonic clock.
    Op { began_us: u64, took_us: u64 },
    /// A transaction met a deadlock and is repeated.
    Repeated,
    /// What was asked for is done.
    Done,
    /// An error of Ruby or of the server.
    Error(String),
}

impl Said {
    /// Understands a line; none if it is not for the lab. One for the lab that is not understood is an error.
    pub fn of(line: &str) -> Option<Said> {
        let text = line.trim_end().strip_prefix("lab: ")?;
        let not_understood = || Said::Error(format!("a line that the lab does not know: {text}"));
        Some(parse(text).unwrap_or_else(not_understood))
    }
}

fn parse(text: &str) -> Option<Said> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let number = |at: usize| rest.split(' ').nth(at)?.parse::<u64>().ok();
    Some(match word {
        "migrated" => Said::Migrated { version: number(0)?, tables: number(1)? },
        "foreign_keys" => {
            let error = rest.split_once(' ').map_or(String::new(), |(_, error)| error.to_string());
            Said::ForeignKeys { stand: number(0)?, error }
        }
        "projects" => Said::Projects(number(0)?),
        "made" => Said::Made(number(0)?),
        "ready" => Said::Ready,
        "op" => Said::Op { began_us: number(0)?, took_us: number(1)? },
        "repeated" => Said::Repeated,
        "done" => Said::Done,
        "error" => Said::Error(rest.to_string()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_scripts() {
        for (line, said) in [
            ("lab: migrated 20220806215628 58\n", Said::Migrated { version: 20_220_806_215_628, tables: 58 }),
            ("lab: foreign_keys 1", Said::ForeignKeys { stand: 1, error: String::new() }),
            (
                "lab: foreign_keys 0 Mysql2::Error: Can't create table",
                Said::ForeignKeys { stand: 0, error: "Mysql2::Error: Can't create table".into() },
            ),
            ("lab: projects 13", Said::Projects(13)),
            ("lab: made 20", Said::Made(20)),
            ("lab: ready 12", Said::Ready),
            ("lab: op 81239128123 20123\n", Said::Op { began_us: 81_239_128_123, took_us: 20_123 }),
            ("lab: repeated", Said::Repeated),
            ("lab: done\n", Said::Done),
            ("lab: error RuntimeError no such thing", Said::Error("RuntimeError no such thing".into())),
        ] {
            assert_eq!(Said::of(line), Some(said), "{line}");
        }
    }

    #[test]
    fn other_lines_are_passed_over_and_broken_ones_are_not() {
        assert_eq!(Said::of("DEPRECATION WARNING: lab: done"), None);
        assert_eq!(Said::of(""), None);
        for line in ["lab: op 12", "lab: op one 2", "lab: ope 1 2", "lab: made", "lab: migrated 1"] {
            assert!(matches!(Said::of(line), Some(Said::Error(error)) if error.contains("does not know")), "{line}");
        }
    }
}
