//! A requester's sessions, and the statements of each operation.
//!
//! As the published driver, a requester has two: one reads with autocommit, one writes in transactions. Statements are text, values in
//! it; the last one of a transaction has its COMMIT behind it, which saves a round trip. Payloads come back as the bytes
//! they are: the server converts no character set.

use super::DATABASE;
use super::request::{LIST_LIMIT, List, Request, now};
use super::schema::{HIDDEN, LINK_COLUMNS, Link, NODE_TYPE, VISIBLE, push_bytes, push_link};
use crate::server::Instance;
use mysql::Conn;
use mysql::prelude::Queryable;
use std::fmt::Write as _;

/// A row of the table of links: ids of both nodes, type, visibility, payload, time, version.
type LinkRow = (u64, u64, u64, u8, Vec<u8>, u64, u32);
/// A row of the table of nodes: id, type, version, time, payload.
type NodeRow = (u64, u32, u64, u32, Vec<u8>);

/// What came of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Nothing that anybody asks for later.
    Other,
    /// A node was added with this id.
    Added(u64),
    /// The node was deleted.
    Deleted(u64),
    /// So many links were read, the last one of this time.
    Listed(u64, u64),
}

/// A requester's two sessions.
pub struct Session {
    read: Conn,
    write: Conn,
}

impl Session {
    /// Opens both.
    pub fn open(instance: &Instance) -> mysql::Result<Session> {
        let (mut read, mut write) = (instance.connect(Some(DATABASE))?, instance.connect(Some(DATABASE))?);
        read.query_drop("SET character_set_results = NULL")?;
        write.query_drop("SET character_set_results = NULL, autocommit = 0")?;
        Ok(Session { read, write })
    }

    /// Does an operation, to the end of its transaction.
    pub fn run(&mut self, request: &Request) -> mysql::Result<Done> {
        match request {
            Request::AddNode(data) => self.add_node(data),
            Request::UpdateNode(id, data) => self.update_node(*id, data),
            Request::DeleteNode(id) => self.delete_node(*id),
            Request::GetNode(id) => self.get_node(*id),
            Request::PutLink(link) => self.put_link(link),
            Request::DeleteLink(id1, link_type, id2) => self.delete_link(*id1, *link_type, *id2),
            Request::CountLink(id, link_type) => self.count_link(*id, *link_type),
            Request::GetLinks(id1, link_type, ends) => self.get_links(*id1, *link_type, ends),
            Request::ListLinks(list) => self.list_links(*list),
        }
    }

    /// Ends a transaction that failed, before it is tried again.
    pub fn rollback(&mut self) -> mysql::Result<()> {
        self.write.query_drop("ROLLBACK")
    }

    fn add_node(&mut self, data: &[u8]) -> mysql::Result<Done> {
        let mut text =
            format!("INSERT INTO nodetable (type, version, time, data) VALUES ({NODE_TYPE},1,{},", seconds());
        push_bytes(&mut text, data);
        text.push_str("); COMMIT");
        Ok(Done::Added(change(&mut self.write, &text)?.id))
    }

    fn update_node(&mut self, id: u64, data: &[u8]) -> mysql::Result<Done> {
        let mut text = format!("UPDATE nodetable SET version=2, time={}, data=", seconds());
        push_bytes(&mut text, data);
        let _ = write!(text, " WHERE id={id} AND type={NODE_TYPE}; COMMIT");
        change(&mut self.write, &text)?;
        Ok(Done::Other)
    }

    fn delete_node(&mut self, id: u64) -> mysql::Result<Done> {
        let text = format!("DELETE FROM nodetable WHERE id={id} AND type={NODE_TYPE}; COMMIT");
        Ok(if change(&mut self.write, &text)?.rows == 1 { Done::Deleted(id) } else { Done::Other })
    }

    fn get_node(&mut self, id: u64) -> mysql::Result<Done> {
        let text = format!("SELECT id, type, version, time, data FROM nodetable WHERE id={id}");
        let _: Option<NodeRow> = self.read.query_first(text)?;
        Ok(Done::Other)
    }

    /// The insert only makes a link visible that exists; its affected rows tell what else is to be done.
    fn put_link(&mut self, link: &Link) -> mysql::Result<Done> {
        let mut text = format!("INSERT INTO linktable ({LINK_COLUMNS}) VALUES ");
        push_link(&mut text, link);
        text.push_str(" ON DUPLICATE KEY UPDATE visibility = VALUES(visibility)");
        let (is_new, was_hidden) = match change(&mut self.write, &text)?.rows {
            0 => (false, false),
            1 => (true, false),
            2 => (false, true),
            rows => return Err(unexpected(format!("an INSERT of a link changed {rows} rows"))),
        };
        if is_new || was_hidden {
            let Link { id1, link_type, .. } = link;
            let (time, commit) = (now(), if is_new { "; COMMIT" } else { "" });
            let text = format!(
                "INSERT INTO counttable (id, link_type, count, time, version) VALUES ({id1},{link_type},1,{time},0) \
                 ON DUPLICATE KEY UPDATE count = count + 1, version = version + 1, time = {time}{commit}"
            );
            change(&mut self.write, &text)?;
        }
        if !is_new {
            let Link { id1, id2, link_type, time, data } = link;
            let mut text = format!("UPDATE linktable SET visibility={VISIBLE}, data=");
            push_bytes(&mut text, data);
            let _ = write!(
                text,
                ", time={time}, version=0 WHERE id1={id1} AND id2={id2} AND link_type={link_type}; COMMIT"
            );
            change(&mut self.write, &text)?;
        }
        Ok(Done::Other)
    }

    /// The row is locked before it is looked at, so that of two who hide a link one counts it.
    fn delete_link(&mut self, id1: u64, link_type: u64, id2: u64) -> mysql::Result<Done> {
        let place = format!("id1={id1} AND id2={id2} AND link_type={link_type}");
        let visibility: Option<u8> =
            self.write.query_first(format!("SELECT visibility FROM linktable WHERE {place} FOR UPDATE"))?;
        if visibility == Some(VISIBLE) {
            change(&mut self.write, &format!("UPDATE linktable SET visibility={HIDDEN} WHERE {place}"))?;
            let time = now();
            let text = format!(
                "INSERT INTO counttable (id, link_type, count, time, version) VALUES ({id1},{link_type},0,{time},0) \
                 ON DUPLICATE KEY UPDATE count = IF(count = 0, 0, count - 1), time = {time}, version = version + 1"
            );
            change(&mut self.write, &text)?;
        }
        self.write.query_drop("COMMIT")?;
        Ok(Done::Other)
    }

    fn count_link(&mut self, id: u64, link_type: u64) -> mysql::Result<Done> {
        let text = format!("SELECT count FROM counttable WHERE id={id} AND link_type={link_type}");
        let _: Option<u64> = self.read.query_first(text)?;
        Ok(Done::Other)
    }

    fn get_links(&mut self, id1: u64, link_type: u64, ends: &[u64]) -> mysql::Result<Done> {
        let ends: Vec<String> = ends.iter().map(u64::to_string).collect();
        let text = format!(
            "SELECT id1, id2, link_type, visibility, data, time, version FROM linktable \
             WHERE id1={id1} AND link_type={link_type} AND id2 IN ({})",
            ends.join(",")
        );
        self.read.query_fold(text, (), |(), _: LinkRow| ())?;
        Ok(Done::Other)
    }

    fn list_links(&mut self, list: List) -> mysql::Result<Done> {
        let List { id1, link_type, newest, skip, .. } = list;
        let text = format!(
            "SELECT id1, id2, link_type, visibility, data, time, version FROM linktable FORCE INDEX (id1_type) \
             WHERE id1={id1} AND link_type={link_type} AND time >= 0 AND time <= {newest} AND visibility={VISIBLE} \
             ORDER BY time DESC LIMIT {skip},{LIST_LIMIT}"
        );
        let (links, oldest) = self.read.query_fold(text, (0, 0), |(links, _), row: LinkRow| (links + 1, row.5))?;
        Ok(Done::Listed(links, oldest))
    }
}

/// What a statement did.
struct Changed {
    rows: u64,
    /// The number that AUTO_INCREMENT gave; 0 if none.
    id: u64,
}

/// Sends a statement, with or without a COMMIT behind it, and takes the answers of both: an error of the second is one, too.
fn change(conn: &mut Conn, text: &str) -> mysql::Result<Changed> {
    let mut answer = conn.query_iter(text)?;
    let changed = Changed { rows: answer.affected_rows(), id: answer.last_insert_id().unwrap_or(0) };
    while let Some(set) = answer.iter() {
        for row in set {
            row?;
        }
    }
    Ok(changed)
}

fn seconds() -> u64 {
    now() / 1000
}

fn unexpected(what: String) -> mysql::Error {
    mysql::Error::IoError(std::io::Error::new(std::io::ErrorKind::InvalidData, what))
}
