//! Random tables, random foreign keys between them, random statements: a model in plain maps says what each statement ends with and
//! what it leaves. After each transaction all rows have their parents and all indexes agree with the rows.

use crate::common::related::*;
use crate::common::values::{V, Values};
use proptest::prelude::*;
use std::collections::BTreeMap;
use strata_row::def::TableDef;
use strata_row::foreign::{Action, ForeignKey};
use strata_row::isolation::Isolation;

const LEVELS_MAX: usize = 15;
/// The end of all turns.
const ALL: usize = usize::MAX;

/// The rows of a table by the first column, the primary key.
type Rows = BTreeMap<i64, Values>;

struct Key {
    child: String,
    key: ForeignKey,
    /// The child's index and the parent's, the primary key's first.
    places: [usize; 2],
}

impl Key {
    fn parent(&self) -> &str {
        self.key.parent.strip_prefix("./db/").unwrap()
    }
}

struct Model {
    defs: BTreeMap<String, TableDef>,
    keys: Vec<Key>,
    tables: BTreeMap<String, Rows>,
}

type Refused = String;

fn equal(a: &V, b: &V) -> bool {
    match (a, b) {
        (V::Text(a), V::Text(b)) => a.trim_end().eq_ignore_ascii_case(b.trim_end()),
        _ => a == b,
    }
}

fn id(row: &Values) -> i64 {
    match row["id"] {
        V::Int(id) => id,
        _ => unreachable!("a primary key"),
    }
}

fn pick<'a>(row: &'a Values, columns: &[String]) -> Vec<&'a V> {
    columns.iter().map(|column| &row[column]).collect()
}

fn same(a: &[&V], b: &[&V]) -> bool {
    a.iter().zip(b).all(|(a, b)| equal(a, b))
}

fn has_null(values: &[&V]) -> bool {
    values.iter().any(|value| **value == V::Null)
}

impl Model {
    /// Puts a row into a table, in the place of `old`. Error: the index in which it is a duplicate.
    fn put(&mut self, table: &str, old: Option<i64>, row: &Values) -> Result<(), usize> {
        let def = &self.defs[table];
        let others = || self.tables[table].iter().filter(|(id, _)| Some(**id) != old).map(|(_, other)| other);
        let order = |number: &usize| (def.primary != Some(*number), *number);
        let mut numbers: Vec<usize> = (0..def.indexes.len()).filter(|n| def.indexes[*n].unique).collect();
        numbers.sort_by_key(order);
        for number in numbers {
            let parts = def.indexes[number].parts.iter();
            let columns: Vec<String> = parts.map(|p| def.columns[p.column as usize].name.clone()).collect();
            let values = pick(row, &columns);
            if !has_null(&values) && others().any(|other| same(&pick(other, &columns), &values)) {
                return Err(number);
            }
        }
        let rows = self.tables.get_mut(table).unwrap();
        old.map(|old| rows.remove(&old));
        rows.insert(id(row), row.clone());
        Ok(())
    }

    /// When the entry of an index is written: the primary key's first.
    fn turn(&self, table: &str, index: usize) -> usize {
        if self.defs[table].primary == Some(index) { 0 } else { index + 1 }
    }

    /// The keys of indexes before `end`; if that is not `ALL` the row is a duplicate and not there.
    fn check(
        &self,
        table: &str,
        old: Option<&Values>,
        new: &Values,
        followed: Option<usize>,
        end: usize,
    ) -> Result<(), Refused> {
        let is_child = |n: &usize| self.keys[*n].child == table && self.keys[*n].places[0] < end;
        let mut numbers: Vec<usize> = (0..self.keys.len()).filter(is_child).collect();
        numbers.sort_by_key(|n| (self.keys[*n].places[0], &self.keys[*n].key.name));
        for number in numbers {
            let key = &self.keys[number];
            let values = pick(new, &key.key.columns);
            let def = &self.defs[table];
            let index = key.places[0].checked_sub(1).or(def.primary).unwrap();
            let parts = def.indexes[index].parts.iter();
            let entry: Vec<String> = parts.map(|part| def.columns[part.column as usize].name.clone()).collect();
            let unchanged = old.is_some_and(|old| id(old) == id(new) && pick(old, &entry) == pick(new, &entry));
            if followed == Some(number) || unchanged || has_null(&values) {
                continue;
            }
            let duplicate = (end != ALL && key.parent() == table).then_some(new);
            let mut parents = self.tables[key.parent()].values().chain(duplicate);
            if !parents.any(|parent| same(&pick(parent, &key.key.parent_columns), &values)) {
                return Err(format!("no parent {}", key.key.name));
            }
        }
        Ok(())
    }

    /// `above`: the tables whose rows have changed on the way here, and whether by an update. The keys of indexes before `end`.
    fn follow(
        &mut self,
        above: &mut Vec<(String, bool)>,
        table: &str,
        old: &Values,
        new: Option<&Values>,
        end: usize,
    ) -> Result<(), Refused> {
        above.push((table.to_owned(), new.is_some()));
        let is_parent = |n: &usize| self.keys[*n].parent() == table && self.keys[*n].places[1] < end;
        let mut numbers: Vec<usize> = (0..self.keys.len()).filter(is_parent).collect();
        numbers.sort_by_key(|n| (self.keys[*n].places[1], &self.keys[*n].key.name));
        let depth = above.len();
        for number in numbers {
            let followed = self.follow_key(above, number, old, new);
            if let (Err(_), Some(new), 1) = (&followed, new, depth) {
                // A parent that is missing by the key of an earlier index.
                self.check(table, Some(old), new, None, self.keys[number].places[1])?;
            }
            followed?;
        }
        above.pop();
        Ok(())
    }

    fn follow_key(
        &mut self,
        above: &mut Vec<(String, bool)>,
        number: usize,
        old: &Values,
        new: Option<&Values>,
    ) -> Result<(), Refused> {
        let Key { child, key, .. } = &self.keys[number];
        let (child, key) = (child.clone(), key.clone());
        let was = pick(old, &key.parent_columns);
        if has_null(&was) || new.is_some_and(|new| was == pick(new, &key.parent_columns)) {
            return Ok(());
        }
        let action = if new.is_some() { key.on_update } else { key.on_delete };
        let is_own = self.keys[number].parent() == child && same(&pick(old, &key.columns), &was);
        if is_own && (new.is_some() || key.on_delete.refuses()) {
            return Err(format!("referenced {}", key.name));
        }
        let refers = |row: &Values| same(&pick(row, &key.columns), &was);
        let ids: Vec<i64> = self.tables[&child].iter().filter(|(_, row)| refers(row)).map(|(id, _)| *id).collect();
        for id in ids {
            let Some(row) = self.tables[&child].get(&id).filter(|row| refers(row)).cloned() else { continue };
            let deletes = new.is_none() && action == Action::Cascade;
            let comes_back = || above.iter().any(|(table, updated)| *updated && *table == child);
            if action.refuses() || !deletes && comes_back() {
                return Err(format!("referenced {}", key.name));
            }
            if above.len() >= LEVELS_MAX {
                return Err("too deep".to_owned());
            }
            if deletes {
                self.tables.get_mut(&child).unwrap().remove(&id);
                self.follow(above, &child, &row, None, ALL)?;
                continue;
            }
            let mut next = row.clone();
            for (column, parent_column) in key.columns.iter().zip(&key.parent_columns) {
                let value = match new.filter(|_| action == Action::Cascade) {
                    Some(new) if new[parent_column] == old[parent_column] => continue,
                    Some(new) => new[parent_column].clone(),
                    None => V::Null,
                };
                if value == V::Null && column == "id" {
                    return Err(format!("referenced {}", key.name));
                }
                next.insert(column.clone(), value);
            }
            if next == row {
                continue;
            }
            let index = |number: usize| format!("duplicate ./db/{child} {}", self.defs[&child].indexes[number].name);
            let named: Vec<String> = (0..self.defs[&child].indexes.len()).map(index).collect();
            if let Err(index) = self.put(&child, Some(id), &next) {
                self.check(&child, Some(&row), &next, Some(number), self.turn(&child, index) + 1)?;
                return Err(named[index].clone());
            }
            self.check(&child, Some(&row), &next, Some(number), ALL)?;
            self.follow(above, &child, &row, Some(&next), ALL)?;
        }
        Ok(())
    }

    /// Gives a row that is to be inserted the values of parents, mostly.
    fn adopt(&self, table: &str, row: &mut Values, choices: &mut Choices<'_>) {
        for key in self.keys.iter().filter(|key| key.child == table) {
            let parents = &self.tables[key.parent()];
            let parent = parents.values().nth(choices.up_to(parents.len().max(1)));
            if choices.up_to(8) == 0 {
                continue;
            }
            for (column, parent_column) in key.key.columns.iter().zip(&key.key.parent_columns) {
                match parent.map_or(&V::Null, |parent| &parent[parent_column]) {
                    V::Null if column == "id" => {}
                    value => drop(row.insert(column.clone(), value.clone())),
                }
            }
        }
    }

    fn insert(&mut self, table: &str, row: &Values) -> Result<(), Refused> {
        if let Err(index) = self.put(table, None, row) {
            self.check(table, None, row, None, self.turn(table, index) + 1)?;
            return Err(format!("duplicate {index}"));
        }
        self.check(table, None, row, None, ALL)
    }

    fn write(&mut self, table: &str, row: &Values, fate: &Fate) -> Result<(), Refused> {
        match fate {
            Fate::Stays => Ok(()),
            Fate::Goes => {
                self.tables.get_mut(table).unwrap().remove(&id(row));
                self.follow(&mut Vec::new(), table, row, None, ALL)
            }
            Fate::Becomes(new) if new == row => Ok(()),
            Fate::Becomes(new) => {
                let duplicate = self.put(table, Some(id(row)), new).err();
                let end = duplicate.map_or(ALL, |index| self.turn(table, index) + 1);
                self.follow(&mut Vec::new(), table, row, Some(new), end)?;
                self.check(table, Some(row), new, None, end)?;
                duplicate.map_or(Ok(()), |index| Err(format!("duplicate {index}")))
            }
        }
    }

    fn each(&mut self, table: &str, decide: impl Fn(&Values) -> Fate) -> Result<(), Refused> {
        let ids: Vec<i64> = self.tables[table].keys().copied().collect();
        for id in ids {
            if let Some(row) = self.tables[table].get(&id).cloned() {
                self.write(table, &row, &decide(&row))?;
            }
        }
        Ok(())
    }

    /// A statement: what fails leaves nothing.
    fn statement(&mut self, body: impl FnOnce(&mut Model) -> Result<(), Refused>) -> String {
        let before = self.tables.clone();
        match body(self) {
            Ok(()) => "ok".to_owned(),
            Err(refused) => {
                self.tables = before;
                refused
            }
        }
    }
}

/// Takes decisions from a list of numbers, so that a failing case can be made smaller.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn up_to(&mut self, n: usize) -> usize {
        usize::from(*self.0.next().unwrap_or(&0)) % n
    }
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.up_to(all.len())]
    }
}

const COLUMNS: &[&str] = &["id int4", "a int4 null", "b int4 null", "t varchar8 null", "x text2 null"];
const TEXTS: &[&str] = &["a", "A", "b", "b ", "A "];

fn schema(choices: &mut Choices<'_>) -> (Db, Model) {
    let mut db = if choices.up_to(3) == 0 { Db::with_large_transactions_from(1 << 10) } else { Db::new() };
    let tables = ["p", "q", "r", "s"];
    let tables = &tables[..1 + choices.of(&[1, 1, 2, 2, 3, 0])];
    for table in tables {
        let a = choices.of(&["a (a)", "a unique (a)", "a (a desc)", "a (a)"]);
        let ab = choices.of(&["ab (a, b)", "ab unique (a, b)", "ab (a, b, id)", "ab (a desc, b)"]);
        let t = choices.of(&["t (t)", "t unique (t)", "t (t desc, id)", "t (t)"]);
        let mut indexes = vec!["PRIMARY (id)", a, ab, t];
        if choices.up_to(2) == 0 {
            indexes.rotate_left(1);
        }
        db.table(table, COLUMNS, &indexes);
    }
    let mut keys = Vec::new();
    for number in 0..2 + choices.up_to(6) {
        let (child, parent) = (choices.of(tables), choices.of(tables));
        // The last one is found by an index of `a` alone, behind which stands the primary key.
        let pairs =
            [("a", "a"), ("a", "id"), ("id", "id"), ("id", "a"), ("a, b", "a, b"), ("t", "t"), ("a, b", "a, id")];
        let (columns, parent_columns) = choices.of(&pairs);
        if child == parent && columns == parent_columns {
            continue;
        }
        let actions = ["restrict", "cascade", "null", "cascade"];
        // SET NULL is refused where a column cannot be NULL.
        let actions = if columns == "id" { &actions[..2] } else { &actions };
        // CASCADE is, where the referenced one can.
        let takes_null = columns != "id" || parent_columns == "id";
        let (delete, update) = (choices.of(actions), choices.of(if takes_null { actions } else { &actions[..1] }));
        // Names are not in the order in which keys are made.
        let name = format!("k{}", (number * 3 + 1) % 7);
        let line =
            format!("{name}: {child} ({columns}) -> {parent} ({parent_columns}) delete {delete} update {update}");
        db.key(&line);
        keys.push(foreign_key(&line));
    }
    db.create();
    let places = |child: &str, name: &str| {
        let table = db.store.open_table(&path(child), db.defs[child].clone()).unwrap();
        let relations = table.state.relations().unwrap();
        let reference = relations.parents.iter().find(|reference| reference.key.name == name).unwrap();
        let place = |table: &str, index: Option<usize>| {
            let primary = db.defs[table.strip_prefix("./db/").unwrap()].primary;
            if primary == index { 0 } else { index.unwrap() + 1 }
        };
        [place(&reference.child, reference.child_index), place(&reference.parent, reference.parent_index)]
    };
    let keys = keys.into_iter().map(|(child, key)| Key { places: places(&child, &key.name), child, key }).collect();
    let tables = db.defs.keys().map(|name| (name.clone(), Rows::new())).collect();
    let model = Model { defs: db.defs.clone(), keys, tables };
    (db, model)
}

fn row(choices: &mut Choices<'_>) -> Values {
    let number = |choices: &mut Choices<'_>| match choices.up_to(7) {
        6 => V::Null,
        n => V::Int(n as i64),
    };
    let text = |choices: &mut Choices<'_>| match choices.up_to(6) {
        5 => V::Null,
        n => TEXTS[n].into(),
    };
    let mut row = Values::new();
    row.insert("id".into(), V::Int(choices.up_to(12) as i64));
    row.insert("a".into(), number(choices));
    row.insert("b".into(), number(choices));
    row.insert("t".into(), text(choices));
    row.insert("x".into(), text(choices));
    row
}

/// A change of rows: some column of those that have a value in another becomes a third.
fn change(choices: &mut Choices<'_>) -> impl Fn(&Values) -> Fate + use<> {
    let by = choices.of(&["id", "id", "a", "b", "t"]);
    let column = choices.of(&["id", "a", "a", "b", "t"]);
    let (wanted, next) = (row(choices), row(choices));
    let fate = choices.up_to(8);
    move |row: &Values| match () {
        () if fate > 0 && !equal(&row[by], &wanted[by]) => Fate::Stays,
        () if fate <= 3 && fate > 0 => Fate::Goes,
        () => {
            let mut changed = row.clone();
            changed.insert(column.to_owned(), next[column].clone());
            if fate == 4 {
                changed.insert("b".to_owned(), next["b"].clone());
            }
            Fate::Becomes(changed)
        }
    }
}

/// Half of the inserted rows stay, a twentieth of the changes of parent rows changes rows of children, and some of these others.
fn run(schema_choices: &[u8], statements: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let (db, mut model) = schema(&mut Choices(schema_choices.iter()));
    let names: Vec<String> = db.defs.keys().cloned().collect();
    let keys: Vec<String> = model.keys.iter().map(|key| format!("{} {:?}", key.child, key.key)).collect();
    let mut conn = db.conn();
    let mut committed = model.tables.clone();
    let mut history = Vec::new();
    for bytes in statements {
        let mut choices = Choices(bytes.iter());
        let mut table = names[choices.up_to(names.len())].clone();
        let kind = choices.up_to(14);
        if kind >= 10 && !model.keys.is_empty() {
            table = model.keys[choices.up_to(model.keys.len())].parent().to_owned();
        }
        match kind {
            0 => {
                conn.commit();
                committed = model.tables.clone();
                let levels = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];
                conn.isolation = choices.of(&levels);
                db.check();
                history.push("commit".to_owned());
            }
            1 => {
                conn.session.rollback().unwrap();
                model.tables = committed.clone();
                history.push("rollback".to_owned());
            }
            2..=9 => {
                let mut row = row(&mut choices);
                model.adopt(&table, &mut row, &mut choices);
                let expected = model.statement(|model| model.insert(&table, &row));
                let got = outcome(&conn.insert(&table, &row));
                history.push(format!("insert into {table} {row:?}: {expected}"));
                prop_assert_eq!(&got, &expected, "keys {:#?}\n{:#?}", &keys, &history);
            }
            _ => {
                let change = change(&mut choices);
                let expected = model.statement(|model| model.each(&table, &change));
                let got = outcome(&conn.each(&table, &change));
                let sample: Vec<_> = committed[&table].values().map(&change).collect();
                history.push(format!("change {table}, such as {sample:?}: {expected}"));
                prop_assert_eq!(&got, &expected, "keys {:#?}\n{:#?}", &keys, &history);
            }
        }
        for name in &names {
            let rows: Vec<Values> = model.tables[name].values().cloned().collect();
            let got = conn.rows(name);
            prop_assert!(got == rows, "{name}: {got:#?}\nnot {rows:#?}\nkeys {keys:#?}\n{history:#?}");
        }
    }
    conn.commit();
    db.check();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("STRATA_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1000),
    ))]

    #[test]
    fn statements_do_what_the_model_does(
        schema in prop::collection::vec(any::<u8>(), 60),
        statements in prop::collection::vec(prop::collection::vec(any::<u8>(), 30), 1..120),
    ) {
        run(&schema, &statements)?;
    }
}
