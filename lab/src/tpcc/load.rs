//! Fills the tables with the data of clause 4.3.3, a thread per warehouse.

use super::random::{Source, last_name};
use super::{DATABASE, DISTRICTS, Scale, schema};
use crate::server::Instance;
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use mysql::Conn;
use mysql::prelude::Queryable;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

/// Rows of one INSERT, which is a transaction of its own.
const BATCH: usize = 500;
/// When the data were made, so that all engines hold the same.
const LOADED: &str = "2026-01-01 00:00:00";

/// Makes the database and fills it; `foreign_keys`: with what its tables refer to, which the rows are checked against.
pub fn load(instance: &Instance, scale: Scale, foreign_keys: bool, threads: u32, progress: &ProgressBar) -> Result<()> {
    let mut conn = session(instance, None)?;
    conn.query_drop(format!("DROP DATABASE IF EXISTS {DATABASE}"))?;
    conn.query_drop(format!("CREATE DATABASE {DATABASE}"))?;
    conn.query_drop(format!("USE {DATABASE}"))?;
    for statement in schema::statements(&instance.engine_clause(), foreign_keys) {
        conn.query_drop(&statement).with_context(|| format!("this statement failed: {statement}"))?;
    }
    fill(instance, scale, threads, progress)
}

/// Fills the tables of the database, which are there.
pub fn fill(instance: &Instance, scale: Scale, threads: u32, progress: &ProgressBar) -> Result<()> {
    let mut conn = session(instance, Some(DATABASE))?;
    progress.set_length(u64::from(scale.warehouses) * 12);
    items(&mut conn, scale)?;
    progress.inc(1);
    let next = AtomicU32::new(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.min(scale.warehouses))
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let mut conn = session(instance, Some(DATABASE))?;
                    loop {
                        let w = next.fetch_add(1, Ordering::Relaxed);
                        if w > scale.warehouses {
                            return Ok(());
                        }
                        warehouse(&mut conn, scale, w, progress)?;
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a loader does not panic"))
    })?;
    for table in schema::TABLES {
        conn.query_drop(format!("ANALYZE TABLE {table}"))?;
    }
    Ok(())
}

fn session(instance: &Instance, database: Option<&str>) -> Result<Conn> {
    let mut conn = instance.connect(database)?;
    // The load is not measured and nobody replicates it.
    conn.query_drop("SET SESSION sql_log_bin=0")?;
    Ok(conn)
}

/// Collects rows and sends them in batches.
struct Rows<'a> {
    conn: &'a mut Conn,
    table: &'static str,
    text: String,
    rows: usize,
}

impl<'a> Rows<'a> {
    fn new(conn: &'a mut Conn, table: &'static str) -> Rows<'a> {
        Rows { conn, table, text: String::new(), rows: 0 }
    }

    fn add(&mut self, row: std::fmt::Arguments) -> Result<()> {
        if self.rows == 0 {
            self.text.clear();
            let _ = write!(self.text, "INSERT INTO {} VALUES ", self.table);
        } else {
            self.text.push(',');
        }
        let _ = write!(self.text, "({row})");
        self.rows += 1;
        if self.rows == BATCH { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<()> {
        if self.rows > 0 {
            self.rows = 0;
            self.conn.query_drop(&self.text).with_context(|| format!("rows of {} cannot be inserted", self.table))?;
        }
        Ok(())
    }
}

fn items(conn: &mut Conn, scale: Scale) -> Result<()> {
    let mut source = Source::for_load(0);
    let mut rows = Rows::new(conn, "item");
    for i in 1..=scale.items {
        let (image, name) = (source.uniform(1, 10_000), source.text(14, 24));
        let (price, data) = (source.uniform(100, 10_000), source.item_data());
        rows.add(format_args!("{i},{image},'{name}',{},'{data}'", Cents(price)))?;
    }
    rows.send()
}

fn warehouse(conn: &mut Conn, scale: Scale, w: u32, progress: &ProgressBar) -> Result<()> {
    let mut source = Source::for_load(u64::from(w));
    let s = &mut source;
    // What the customers of a district have paid: 30,000.00 with 3,000 of them.
    let district_ytd = 10 * scale.customers;
    let ytd = DISTRICTS * district_ytd;
    let mut rows = Rows::new(conn, "warehouse");
    rows.add(format_args!("{w},'{}',{},{},{ytd}.00", s.text(6, 10), Address(s).text(), Fraction(s.uniform(0, 2000))))?;
    rows.send()?;
    stock(conn, s, scale, w)?;
    progress.inc(1);
    for d in 1..=DISTRICTS {
        let mut rows = Rows::new(conn, "district");
        rows.add(format_args!(
            "{d},{w},'{}',{},{},{district_ytd}.00,{}",
            s.text(6, 10),
            Address(s).text(),
            Fraction(s.uniform(0, 2000)),
            scale.customers + 1
        ))?;
        rows.send()?;
        customers(conn, s, scale, w, d)?;
        orders(conn, s, scale, w, d)?;
        progress.inc(1);
    }
    Ok(())
}

fn stock(conn: &mut Conn, s: &mut Source, scale: Scale, w: u32) -> Result<()> {
    let mut rows = Rows::new(conn, "stock");
    for i in 1..=scale.items {
        let quantity = s.uniform(10, 100);
        let mut districts = String::new();
        for _ in 0..DISTRICTS {
            let _ = write!(districts, "'{}',", s.text(24, 24));
        }
        rows.add(format_args!("{i},{w},{quantity},{districts}'{}',0,0,0", s.item_data()))?;
    }
    rows.send()
}

fn customers(conn: &mut Conn, s: &mut Source, scale: Scale, w: u32, d: u32) -> Result<()> {
    let mut rows = Rows::new(conn, "customer");
    for c in 1..=scale.customers {
        // The first thousand have each name once.
        let last = if c <= 1000 { last_name(c - 1) } else { s.last_name(scale.last_names()) };
        let credit = if s.percent(10) { "BC" } else { "GC" };
        rows.add(format_args!(
            "{c},{d},{w},'{}','OE','{last}',{},'{}','{LOADED}','{credit}',50000.00,{},-10.00,10.00,1,0,'{}'",
            s.text(8, 16),
            Address(s).text(),
            s.digits(16),
            Fraction(s.uniform(0, 5000)),
            s.text(300, 500)
        ))?;
    }
    rows.send()?;
    // The amount of each customer's first payment.
    let mut rows = Rows::new(conn, "history");
    for c in 1..=scale.customers {
        rows.add(format_args!("{c},{d},{w},{d},{w},'{LOADED}',10.00,'{}'", s.text(12, 24)))?;
    }
    rows.send()
}

fn orders(conn: &mut Conn, s: &mut Source, scale: Scale, w: u32, d: u32) -> Result<()> {
    let customers = s.permutation(scale.customers);
    let counts: Vec<u32> = customers.iter().map(|_| s.uniform(5, 15)).collect();
    let mut rows = Rows::new(conn, "orders");
    for (o, (c, lines)) in (1..).zip(customers.iter().zip(&counts)) {
        if o < scale.first_new_order() {
            rows.add(format_args!("{o},{d},{w},{c},'{LOADED}',{},{lines},1", s.uniform(1, 10)))?;
        } else {
            rows.add(format_args!("{o},{d},{w},{c},'{LOADED}',NULL,{lines},1"))?;
        }
    }
    rows.send()?;
    let mut rows = Rows::new(conn, "order_line");
    for (o, lines) in (1..).zip(&counts) {
        for number in 1..=*lines {
            let (item, info) = (s.uniform(1, scale.items), s.text(24, 24));
            if o < scale.first_new_order() {
                rows.add(format_args!("{o},{d},{w},{number},{item},{w},'{LOADED}',5,0.00,'{info}'"))?;
            } else {
                let amount = Cents(s.uniform(1, 999_999));
                rows.add(format_args!("{o},{d},{w},{number},{item},{w},NULL,5,{amount},'{info}'"))?;
            }
        }
    }
    rows.send()?;
    let mut rows = Rows::new(conn, "new_order");
    for o in scale.first_new_order()..=scale.customers {
        rows.add(format_args!("{o},{d},{w}"))?;
    }
    rows.send()
}

/// An amount of money, in cents, as SQL has it.
struct Cents(u32);

impl std::fmt::Display for Cents {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

/// A fraction in ten-thousandths.
struct Fraction(u32);

impl std::fmt::Display for Fraction {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "0.{:04}", self.0)
    }
}

/// Two streets, a city, a state and a zip code.
struct Address<'a>(&'a mut Source);

impl Address<'_> {
    fn text(self) -> String {
        let s = self.0;
        let (street, street2, city) = (s.text(10, 20), s.text(10, 20), s.text(10, 20));
        format!("'{street}','{street2}','{city}','{}','{}'", s.text(2, 2), s.zip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money() {
        assert_eq!(Cents(5).to_string(), "0.05");
        assert_eq!(Cents(999_999).to_string(), "9999.99");
        assert_eq!(Fraction(12).to_string(), "0.0012");
    }
}
