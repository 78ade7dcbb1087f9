//! What the binary log says about the ledger, by `mariadb-binlog`.
//!
//! A transaction counts when its group is complete (a commit follows its rows);
//! the incomplete group at the end of a log that a crash cut is nothing, as the
//! server sees it, too.

use crate::ledger::{DATABASE, Document, Documents};
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Rows of the ledger's lines as the log has them.
#[derive(Debug, Default)]
pub struct Replay {
    documents: Documents,
    pending: Vec<Row>,
    reading: Option<Kind>,
    /// Number of the newest file that is applied.
    applied: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Insert,
    Delete,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    kind: Kind,
    document: Document,
}

impl Replay {
    /// Applies the binary logs of a folder that are complete and not yet applied.
    pub fn advance(&mut self, folder: &Path) -> Result<()> {
        for (number, file) in complete(folder)? {
            if number <= self.applied {
                continue;
            }
            let database = format!("--database={DATABASE}");
            let (mut child, output) = reader(&file, &["--base64-output=DECODE-ROWS", "-v", &database])?;
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line)? > 0 {
                self.line(&String::from_utf8_lossy(&line));
                line.clear();
            }
            child.wait()?;
            self.end_of_file();
            self.applied = number;
        }
        Ok(())
    }

    /// Takes one line of the decoded log.
    fn line(&mut self, line: &str) {
        let line = line.trim_end();
        if let Some(row) = line.strip_prefix("### ") {
            self.row_line(row);
        } else if line.starts_with("COMMIT") {
            self.commit();
        } else if line.starts_with("ROLLBACK") {
            self.pending.clear();
        }
    }

    fn row_line(&mut self, row: &str) {
        let table = format!("`{DATABASE}`.`line`");
        if let Some(target) = row.strip_prefix("INSERT INTO ") {
            self.reading = (target == table).then_some(Kind::Insert);
        } else if let Some(target) = row.strip_prefix("DELETE FROM ") {
            self.reading = (target == table).then_some(Kind::Delete);
        } else if row.starts_with("UPDATE ") {
            self.reading = None;
        } else if let (Some(kind), Some(value)) = (self.reading, row.trim_start().strip_prefix("@1="))
            && let Some(Ok(document)) = value.split_whitespace().next().map(str::parse)
        {
            self.pending.push(Row { kind, document });
            self.reading = None;
        }
    }

    fn commit(&mut self) {
        for row in self.pending.drain(..) {
            let lines = self.documents.entry(row.document).or_default();
            match row.kind {
                Kind::Insert => *lines += 1,
                Kind::Delete => *lines = lines.saturating_sub(1),
            }
            if *lines == 0 {
                self.documents.remove(&row.document);
            }
        }
    }

    fn end_of_file(&mut self) {
        self.pending.clear();
        self.reading = None;
    }

    /// Says where table and log differ.
    pub fn compare(&self, table: &Documents, wrong: &mut Vec<String>) {
        for (document, lines) in table {
            let logged = self.documents.get(document).copied().unwrap_or(0);
            if logged != *lines {
                wrong.push(format!("document {document}: {lines} lines in the table, {logged} by the binary log"));
            }
        }
        for (document, lines) in self.documents.iter().filter(|(document, _)| !table.contains_key(document)) {
            wrong.push(format!("document {document}: not in the table, {lines} lines by the binary log"));
        }
    }
}

/// `mariadb-binlog` at work on a file, and its output.
pub fn reader(file: &Path, args: &[&str]) -> Result<(Child, ChildStdout)> {
    let mut child = Command::new("mariadb-binlog")
        .arg("--no-defaults")
        .args(args)
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // It complains about logs that a crash has cut; the rows tell.
        .stderr(Stdio::null())
        .spawn()
        .context("mariadb-binlog is not installed; 'make setup' installs it")?;
    let output = child.stdout.take().context("stdout is piped")?;
    Ok((child, output))
}

/// The log files that are complete, with their numbers, in order: all but the
/// newest, which the running server has just begun.
pub fn complete(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let number = path.extension().and_then(|e| e.to_str()).and_then(|e| e.parse::<u64>().ok());
        if let Some(number) = number {
            files.push((number, path));
        }
    }
    files.sort();
    files.pop();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(text: &str) -> Replay {
        let mut replay = Replay::default();
        text.lines().for_each(|line| replay.line(line));
        replay.end_of_file();
        replay
    }

    const ADD: &str = "BEGIN\n/*!*/;\n# at 500\n\
        ### INSERT INTO `ledger`.`line`\n### SET\n###   @1=1000000001\n###   @2=1\n###   @3=2\n\
        ### INSERT INTO `ledger`.`line`\n### SET\n###   @1=1000000001\n###   @2=2\n###   @3=2\n\
        ### INSERT INTO `ledger`.`movement`\n### SET\n###   @1=1000000001\n\
        ### UPDATE `ledger`.`account`\n### WHERE\n###   @1=7\n###   @2=0\n### SET\n###   @1=7\n###   @2=5\n\
        #261121 22:00:00 server id 1  end_log_pos 900 CRC32 0x00 \tXid = 33\nCOMMIT/*!*/;\n";
    const REMOVE: &str = "BEGIN\n### DELETE FROM `ledger`.`line`\n### WHERE\n###   @1=1000000001\n###   @2=1\n\
        ### DELETE FROM `ledger`.`line`\n### WHERE\n###   @1=1000000001\n###   @2=2\nCOMMIT/*!*/;\n";

    #[test]
    fn complete_groups_count() {
        let replay = replay(ADD);
        assert_eq!(replay.documents, Documents::from([(1_000_000_001, 2)]));
        let mut wrong = Vec::new();
        replay.compare(&Documents::from([(1_000_000_001, 2)]), &mut wrong);
        assert!(wrong.is_empty());
        replay.compare(&Documents::from([(1_000_000_001, 1)]), &mut wrong);
        replay.compare(&Documents::new(), &mut wrong);
        assert_eq!(wrong.len(), 2);
    }

    #[test]
    fn groups_without_an_end_do_not() {
        let cut = ADD.split("#261121").next().unwrap();
        assert_eq!(replay(cut).documents.len(), 0);
        assert_eq!(replay(&format!("{cut}ROLLBACK/* added by mysqlbinlog */;\n")).documents.len(), 0);
    }

    #[test]
    fn removed_documents_are_gone() {
        assert_eq!(replay(&format!("{ADD}{REMOVE}")).documents.len(), 0);
    }
}
