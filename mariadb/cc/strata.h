/* The C interface of Strata's row layer, implemented by mariadb/src (Rust), used by the handler (C++).

   Conventions
   - Every call returns a StrataResult (int) unless noted; the text of the last error of the calling thread is had from
     strata_error_message(). No call lets a panic or an exception out.
   - Pointers passed in are borrowed for the call only, unless noted. Handles are freed by their own close call.
   - A StrataSession belongs to one connection and is used by one thread at a time; only strata_session_kill may be
     called from another thread.
   - Records, key images and offsets are the server's own formats (record[0]; key images as in handler::index_read_map). */
#ifndef STRATA_H
#define STRATA_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct StrataStore StrataStore;     /* the open database: one per process */
typedef struct StrataSession StrataSession; /* one per connection: transaction, snapshot, locks */
typedef struct StrataTable StrataTable;     /* an open table, reference counted, shared by handlers */
typedef struct StrataCheckpoint StrataCheckpoint; /* a copy of the database that is being made */
typedef struct StrataBuild StrataBuild;     /* new indexes of a table that are being made */
typedef struct StrataCursor StrataCursor;   /* one per handler instance: scan position and row buffers */

enum StrataResult {
  STRATA_OK = 0,
  STRATA_NOT_FOUND = 1,       /* no such row / key */
  STRATA_END = 2,             /* scan is at its end */
  STRATA_DUPLICATE = 3,       /* unique key violated; the index is in the out parameter */
  STRATA_LOCK_TIMEOUT = 4,
  STRATA_LOCK_BUSY = 5,       /* NOWAIT */
  STRATA_DEADLOCK = 6,        /* the transaction must be rolled back as a whole */
  STRATA_INTERRUPTED = 7,     /* killed or timed out by the server */
  STRATA_CONFLICT = 8,        /* row changed since the snapshot */
  STRATA_CORRUPTION = 9,
  STRATA_IO = 10,
  STRATA_DISK_FULL = 11,
  STRATA_POISONED = 12,       /* the store has stopped after a failure: nothing works until restart */
  STRATA_NO_TABLE = 13,
  STRATA_TABLE_EXISTS = 14,
  STRATA_KEY_TOO_LONG = 15,
  STRATA_ROW_TOO_LONG = 16,
  STRATA_SAME = 17,           /* update changed nothing */
  STRATA_AUTOINC_EXHAUSTED = 18,
  STRATA_TABLE_CHANGED = 19,  /* the snapshot is older than the table's definition */
  STRATA_INVALID = 20,        /* bad argument or option: see the message */
  STRATA_IN_USE = 21,         /* the directory is locked by another process */
  STRATA_NO_XID = 22,         /* no prepared transaction has this id */
  STRATA_NO_REFERENCED_ROW = 23, /* a row of a child without its parent row: strata_failed_reference */
  STRATA_ROW_IS_REFERENCED = 24, /* rows of a child refer to the row, or its key to the table: strata_failed_reference */
  STRATA_CASCADE_TOO_DEEP = 25,  /* strata_failed_reference: the key that is not followed */
  STRATA_FOREIGN_DUPLICATE = 26, /* a cascade violates a unique key: strata_failed_name 0 the child, 1 the index */
  STRATA_CANNOT_ADD_FOREIGN = 27, /* the message says why; strata_failed_name 0 the key's name, quoted, or its columns */
  STRATA_INDEX_OF_FOREIGN = 28,  /* strata_failed_name 0: the index that a foreign key needs */
  STRATA_FOREIGN_NAME_TAKEN = 29, /* strata_failed_name 0: the name of a key that the database has already */
  STRATA_FOREIGN_UNFIT_PARENT = 30, /* STRATA_CANNOT_ADD_FOREIGN: the parent lacks such columns at the beginning of an index */
  STRATA_FOREIGN_NO_NULL = 31,      /* STRATA_CANNOT_ADD_FOREIGN: an action gives NULL to a column that takes none */
  STRATA_NO_FOREIGN_KEY = 33,       /* one that is to go; its name: strata_failed_name(0) */
  STRATA_WRONG_OPTION = 32,   /* an option of a new table that cannot be had: see the message */
  STRATA_INTERNAL = 99        /* a bug: see the message */
};

/* ---- collations --------------------------------------------------------------------------------------------------- */
enum { STRATA_CS_PAD = 1,      /* PAD SPACE */
       STRATA_CS_BYTES = 2,    /* order of values = order of their bytes (binary, *_bin of 8-bit sets and UTF-8) */
       STRATA_CS_BINARY = 4,   /* the binary pseudo charset: BINARY pads with 0x00, no character set */
       STRATA_CS_MULTILEVEL = 8, /* weights come in several levels: no padding can be cut from them */
       STRATA_CS_TWO_FORMS = 16  /* keys are made of weights in form 2; older tables have form 1 (docs/develop/format/keys.md) */ };
typedef struct {
  uint32_t id;                 /* CHARSET_INFO::number */
  uint32_t flags;
  uint32_t mbminlen, mbmaxlen;
  const char *name;            /* collation name, 0-terminated */
  const void *cs;              /* CHARSET_INFO*, handed back to the callbacks; lives as long as the process */
} StrataCollation;

typedef struct {
  /* strnxfrm without padding: weights of at most `nchars` characters of src into dst; returns bytes written. */
  size_t (*weights)(const void *cs, uint32_t form, const uint8_t *src, size_t src_len, size_t nchars, uint8_t *dst,
                    size_t dst_cap);
  /* upper bound of the bytes `weights` writes for src_len bytes of text (strnxfrmlen) */
  size_t (*weights_max)(const void *cs, size_t src_len);
  /* strnxfrm padded to its full length for `nchars` characters (multi-level collations) */
  size_t (*weights_padded)(const void *cs, uint32_t form, const uint8_t *src, size_t src_len, size_t nchars, uint8_t *dst,
                           size_t dst_cap);
  /* bytes of the first `nchars` characters of src (my_charpos, clipped to src_len) */
  size_t (*prefix_bytes)(const void *cs, const uint8_t *src, size_t src_len, size_t nchars);
  /* collation by id, when the catalog names one before a handler opened the table; false if the server has none */
  int (*find)(uint32_t id, StrataCollation *out);
  /* severity: 0 information, 1 warning, 2 error. Any thread. */
  void (*log)(int severity, const char *text, size_t len);
  /* non-zero once the statement of this THD (null: of this thread) must stop; polled in long scans and waits */
  int (*killed)(const void *thd);
  /* Waits for row locks, on the waiting thread; none of these may come back into this interface. Does anybody want to
     know that this thread's connection waits (1), and for whom (2)? If so: it waits for a lock that `ahead` has or gets
     first (null: a lock of somebody). */
  int (*wants_waits)(void);
  void (*waits)(const void *ahead);
  /* The calling thread, be it a connection's or not, begins and ends a wait for others: a lock (0), the log (1),
     background work (2). A pool of threads lets another thread work meanwhile. Kept for the life of the process. */
  void (*blocking_begins)(int what);
  void (*blocking_ends)(void);
  /* A thread of the store's own begins (its name, 0-terminated) and ends. Kept for the life of the process. */
  void (*thread_begins)(const char *name);
  void (*thread_ends)(void);
  /* Two connections in a deadlock: negative if `a` should give way, positive if `b` should, 0 if it does not matter. */
  int (*victim)(const void *a, const void *b);
  /* Name of the binary log that is written now: its length, 0 if there is none. Asked for before a transaction is prepared; may
     take the server's mutex over that log. */
  size_t (*binlog)(char *name, size_t cap);
  /* The statement that a connection (null: the calling thread's, if it has one) runs at this moment, as far as there is room; its
     length. */
  size_t (*query)(const void *thd, char *text, size_t cap);
  /* How a part of a table's path, the database's or the table's, is written in SQL (without quotes): its length. Any thread. */
  size_t (*identifier)(const char *part, char *out, size_t cap);
  /* Children of foreign keys with virtual columns in indexes, whose rows a cascade changes on the thread of the connection `thd`: the
     table as the server has it open for the statement (null: it has not), and its indexed virtual columns, computed in a record
     that has all others, 0 if it worked. What they point to stays valid until the next call. Of a row that comes (`is_new`) what does
     not fit is told as of a statement's own row, by a warning or an error; of one that was it is not told. */
  const StrataTable *(*child)(const void *thd, const char *name);
  /* Keys of the server's encryption plugin: the newest version of one, 0 if there is none; the bytes of a version into a buffer of
     `cap` bytes: how many, 0 if it cannot be had. Any thread. */
  uint32_t (*key_version)(uint32_t id);
  size_t (*key_bytes)(uint32_t id, uint32_t version, uint8_t *out, size_t cap);
  int (*compute_child)(const void *thd, const char *name, uint8_t *record, int is_new);
  /* The time of the statement that a connection runs, as the server puts it into ROW START and ROW END: STRATA_TIME_BYTES. */
  void (*statement_time)(const void *thd, uint8_t *out);
  /* Up to which moment rows that have expired may be removed, of the present one, in seconds since 1970. On the purge's thread. */
  uint64_t (*purge_until)(uint64_t present);
  /* Instruments of files, null if there are none: an operation begins and has ended, both on the same thread, which does no other one
     in between. `name` is given for OPEN, REMOVE and RENAME, for the time of the call; `file` is what the end of its OPEN has returned; `bytes` are those of READ and
     WRITE, at the end those that went through. `from` and `to` are given for RENAME. */
  void (*file_begins)(uint32_t operation, uint32_t kind, void *file, const char *name, size_t bytes);
  void *(*file_ends)(int ok, size_t bytes, const char *from, const char *to);
  /* Instruments of memory, null if there are none: a part, by its number among strata_memory_parts(), is `bytes` now, of which the server has
     counted `counted`. Returns what it has counted now. One call at a time. */
  uint64_t (*memory)(uint32_t part, uint64_t counted, uint64_t bytes);
} StrataCallbacks;

enum StrataFileOperation { STRATA_FILE_OPEN = 0, STRATA_FILE_CLOSE = 1, STRATA_FILE_READ = 2, STRATA_FILE_WRITE = 3, STRATA_FILE_SYNC = 4,
                           STRATA_FILE_RESIZE = 5, STRATA_FILE_STAT = 6, STRATA_FILE_REMOVE = 7, STRATA_FILE_RENAME = 8 };
enum StrataFileKind { STRATA_FILE_SST = 0, STRATA_FILE_LOG = 1, STRATA_FILE_MANIFEST = 2 };
/* The parts of the store's memory: their names, which live as long as the process. Fills at most cap; returns how many there are. */
size_t strata_memory_parts(const char **names, size_t cap);

/* ---- table definitions ---------------------------------------------------------------------------------------------- */
enum StrataColumnType {
  STRATA_INT = 0,     /* little-endian integer of `size` bytes 1,2,3,4,8: ints, YEAR, ENUM, SET, DATE, old temporal types */
  STRATA_FLOAT = 1, STRATA_DOUBLE = 2,
  STRATA_BYTES = 3,   /* `size` bytes whose memcmp order is the value order: DECIMAL, TIME/DATETIME/TIMESTAMP(n), INET6, UUID, BIT as bytes */
  STRATA_CHAR = 4,    /* `size` bytes, padded with spaces (with 0x00 if STRATA_CS_BINARY) */
  STRATA_VARCHAR = 5, /* length in `length_bytes` (1|2) little-endian, then up to `size` bytes */
  STRATA_BLOB = 6     /* length in `length_bytes` (1..4) little-endian, then a pointer to the bytes */
};
enum {
  STRATA_COL_UNSIGNED = 1,
  STRATA_COL_VIRTUAL = 2,  /* not stored in rows, may be in keys */
  STRATA_COL_NULL_HIGH = 4, /* under NULL the server leaves 0x80 in the first byte, not 0 */
  STRATA_COL_MOMENT = 8,   /* may be seconds since 1970: an integer, or a TIMESTAMP as four bytes, the highest first, and a fraction */
  STRATA_COL_WITHOUT_VERSIONS = 16
};
typedef struct {
  const char *name;           /* UTF-8, 0-terminated */
  uint8_t type, flags, length_bytes;
  uint8_t null_mask;          /* bit in record[null_offset]; 0 = NOT NULL */
  uint32_t null_offset;
  uint32_t offset;            /* in the record */
  uint32_t size;              /* see the type; for BLOB 0 */
  StrataCollation collation;  /* CHAR, VARCHAR, BLOB; name NULL otherwise */
} StrataColumn;

enum { STRATA_PART_DESC = 1 };
typedef struct {
  uint32_t column;            /* number in the column array */
  uint32_t length;            /* bytes of the column that are indexed (KEY_PART_INFO::length); whole column or prefix */
  uint32_t flags;
  uint32_t store_length;      /* bytes of the part in a key image (KEY_PART_INFO::store_length) */
} StrataKeyPart;

enum { STRATA_INDEX_UNIQUE = 1, STRATA_INDEX_LONG_HASH = 2 /* hidden hash column of a long UNIQUE; not unique itself */,
       STRATA_INDEX_WITHOUT_OVERLAPS = 4 /* the last two parts are a period's end and start, which the server checks */ };
typedef struct {
  const char *name;
  uint32_t flags;
  uint32_t part_count;
  const StrataKeyPart *parts;
} StrataIndex;

enum { STRATA_TIME_BYTES = 7 }; /* of a TIMESTAMP(6): seconds since 1970, the highest byte first, and millionths */
enum {
  STRATA_TABLE_TEMPORARY = 1,
  STRATA_TABLE_NO_ROLLBACK = 2,     /* sequences: writes are at once durable-ordered and visible */
  STRATA_TABLE_SHORT_REFERENCES = 4 /* references have at most 256 bytes; a row whose key is longer is refused */
};
typedef struct {
  uint32_t column_count; const StrataColumn *columns;
  uint32_t index_count; const StrataIndex *indexes;
  int32_t primary;            /* index number of the clustered key, or -1: hidden 8-byte row id */
  uint32_t record_bytes, null_bytes;
  int32_t autoinc_column;     /* -1: none */
  uint32_t flags;
  uint8_t version[16];        /* tabledef_version; all zero if unknown */
  int32_t compression;        /* COMPRESSION= table option: -1 default, 0 none, 1 lz4, 2 zstd */
  uint8_t encrypted;          /* ENCRYPTED= table option: 0 default, 1 yes, 2 no */
  uint32_t encryption_key;    /* ENCRYPTION_KEY_ID= table option: 1 or more */
  const char *ttl;            /* TTL= table option; NULL: none. Read where a table is made or altered */
  int32_t row_start, row_end; /* columns of a table with system versions; -1: none. Likewise */
  uint8_t row_end_max[STRATA_TIME_BYTES]; /* ROW END of a present row */
} StrataTableDef;

/* ---- foreign keys --------------------------------------------------------------------------------------------------- */
enum StrataAction { STRATA_RESTRICT = 0, STRATA_NO_ACTION = 1, STRATA_CASCADE = 2, STRATA_SET_NULL = 3 };
typedef struct {
  const char *name;           /* empty: one is made */
  const char *parent;         /* the parent's name in the catalog; there may be no such table */
  uint32_t column_count;
  const char *const *columns, *const *parent_columns;
  uint8_t on_delete, on_update; /* StrataAction */
  uint8_t inherited;          /* a key of the table that is altered: the rows that are copied are not checked */
} StrataForeignKey;
/* What a statement says that changes tables. */
typedef struct {
  int checks;                 /* foreign_key_checks */
  int drops_database;         /* keys between tables of the database are no obstacle */
  int strict;                 /* keys by which NULL could come to a column that takes none are refused */
  const char *altered;        /* the table that the statement alters, or NULL: a name "#sql..." stands for it */
  uint64_t wait_us;           /* for prepared transactions without a session that have written to the table */
} StrataDdl;
/* A foreign key of a table, for the time of a call. */
typedef struct {
  const char *name, *child, *parent; /* tables by their names in the catalog */
  const char *parent_index;   /* name; NULL if there is no parent that fits */
  const char *const *columns, *const *parent_columns;
  const uint8_t *nullable;    /* of the child's columns, then of the parent's */
  uint32_t column_count;
  uint8_t on_delete, on_update;
} StrataReference;

/* ---- store ---------------------------------------------------------------------------------------------------------- */
typedef struct {
  const char *dir;
  uint64_t block_cache_bytes, memtable_budget_bytes, log_segment_bytes; /* 0 = derive from the machine */
  uint32_t background_threads;                                         /* 0 = derive */
  uint32_t flush_log;                                                  /* 0, 1, 2 */
  uint32_t connections;                                                /* the most that the server lets in */
  uint32_t encrypt_log;                                                /* non-zero: the log is encrypted, under key 1 */
  uint32_t encrypt_tables;                                             /* as strata_set_encrypt_tables */
  uint64_t history_retention_s;                                        /* seconds for which the past is kept */
} StrataConfig;
typedef struct { const char *name; uint64_t value; } StrataMetric;     /* names live as long as the store */

int strata_open(const StrataConfig *config, const StrataCallbacks *callbacks, StrataStore **store);
int strata_close(StrataStore *store);                      /* flushes what a clean stop should flush; frees.
                                                              STRATA_POISONED: the store had stopped, or stops now */
size_t strata_error_message(char *buf, size_t cap);        /* of this thread's last failed call; returns full length */
void strata_set_flush_log(StrataStore *store, uint32_t mode);
/* What becomes of tables that do not say: 0 not encrypted, 1 encrypted, 2 and new ones may not refuse it. Files are written anew in
   the background. */
int strata_set_encrypt_tables(StrataStore *store, uint32_t mode);
/* Removal of expired rows (TTL) in the background: begins, once tables may be opened; is on or off; ends, when this returns. */
int strata_purge_start(StrataStore *store, int on);
void strata_purge_set(StrataStore *store, int on);
void strata_purge_stop(StrataStore *store);
void strata_set_print_deadlocks(StrataStore *store, int on); /* each deadlock in the server's log */
/* The past is kept for so many seconds; 0 ends the history. */
int strata_set_history_retention(StrataStore *store, uint64_t seconds);
void strata_set_block_cache_bytes(StrataStore *store, uint64_t bytes);
void strata_set_memtable_budget_bytes(StrataStore *store, uint64_t bytes);
int strata_sync(StrataStore *store);                       /* everything committed so far is durable on return */
/* A copy of the database in a directory, which is a database of its own: an absolute name of nothing that exists, outside of the
   current directory, or a name without a slash that begins with "checkpoint", within the database's directory. Three calls: begin links files; fix notes the moment that the copy shows, without I/O but a sync that is under
   way; finish completes it, durably, and frees. A copy that is freed before leaves nothing. Until then the database removes no
   file. */
int strata_checkpoint_begin(StrataStore *store, const char *dir, StrataCheckpoint **checkpoint);
int strata_checkpoint_fix(StrataCheckpoint *checkpoint);
int strata_checkpoint_finish(StrataCheckpoint *checkpoint, const char *note); /* what the copy's file CHECKPOINT says */
void strata_checkpoint_free(StrataCheckpoint *checkpoint); /* null: nothing */
/* Tables of information_schema: emit is called once per row. */
enum StrataReport { STRATA_REPORT_LOCKS = 0, STRATA_REPORT_LOCK_WAITS = 1, STRATA_REPORT_TRANSACTIONS = 2, STRATA_REPORT_METRICS = 3,
                    STRATA_REPORT_FOREIGN_KEYS = 4, STRATA_REPORT_BUILDS = 5, STRATA_REPORT_TABLES = 6,
                    STRATA_REPORT_INDEXES = 7, STRATA_REPORT_LEVELS = 8, STRATA_REPORT_COMPACTIONS = 9 };
typedef struct { const char *text; size_t len; uint64_t number; } StrataCell; /* a number if text is NULL */
int strata_report(StrataStore *store, uint32_t which, void (*emit)(void *ctx, const StrataCell *cells, size_t count), void *ctx);
/* The figures of STRATA_REPORT_METRICS, without rows. Fills at most cap entries; returns how many there are. */
size_t strata_metrics(StrataStore *store, StrataMetric *out, size_t cap);
/* The text of SHOW ENGINE STRATA STATUS, in pieces. */
int strata_status(StrataStore *store, void (*emit)(void *ctx, const char *text, size_t len), void *ctx);

/* ---- catalog: every call is atomic and durable when it returns --------------------------------------------------------- */
/* Names are the server's paths: "./db/table", partitions and temporary tables included. */
int strata_table_create(StrataStore *store, const char *name, const StrataTableDef *def, uint64_t autoinc_start,
                        const StrataForeignKey *keys, uint32_t key_count, const StrataDdl *ddl);
int strata_has_tables(StrataStore *store);                               /* non-zero if there is any table */
/* `whole`: the statement drops whole tables, not partitions of one that stays. STRATA_NO_TABLE if absent */
int strata_table_drop(StrataStore *store, const char *name, int whole, const StrataDdl *ddl);
int strata_table_rename(StrataStore *store, const char *from, const char *to, const StrataDdl *ddl);
int strata_table_truncate(StrataStore *store, const char *name, const StrataDdl *ddl); /* new empty indexes; auto-increment restarts */
int strata_database_drop(StrataStore *store, const char *prefix);        /* "./db/": drops whatever is left below */
/* Opens by name; checks that `def` agrees with the catalog (column layout, indexes in any order, collations). */
int strata_table_open(StrataStore *store, const char *name, const StrataTableDef *def, StrataTable **table);
/* An error if the table could not be opened with `def`. The order of indexes may differ. */
int strata_table_fits(StrataStore *store, StrataTable *table, const StrataTableDef *def);
void strata_table_close(StrataTable *table);
/* What ALTER TABLE makes of a table, or of each partition of one. */
typedef struct {
  const StrataTableDef *def;
  const int32_t *columns;     /* for each column of `def`: which of the present ones it is, -1: a new one, whose value in all rows is
                                 that of `record` */
  const int32_t *indexes;     /* for each index of `def`: which of the present ones it is, -1: a new one */
  const uint8_t *record;      /* of the new definition */
  const StrataDdl *ddl;
  uint8_t rebuilds;           /* rows are written anew, and all indexes are new */
  uint8_t converts;           /* records are made of others: see StrataRows::make */
  const StrataForeignKey *keys; /* that come */
  uint32_t key_count;
  const char *const *dropped; /* names of foreign keys that go */
  uint32_t dropped_count;
  uint64_t counter;           /* not 0: the AUTO_INCREMENT column is new, has the values that the records bring, and goes on here */
} StrataAlteration;
/* An error where the change would be refused. Nothing changes. */
int strata_alter_check(StrataStore *store, const StrataTable *table, const StrataAlteration *alteration);
/* Locks a parent of each row by the foreign keys that come, until the transaction ends: STRATA_NO_REFERENCED_ROW if one is missing. In a
   statement. Nobody may write to the table, or replace the parents, from here until it has the keys. */
int strata_alter_lock_parents(StrataStore *store, StrataTable *table, StrataSession *session, const StrataAlteration *alteration);
/* Changes tables, all or none, that get no new index; rows stay. The tables are to be opened again. */
int strata_alter_tables(StrataStore *store, StrataTable *const *tables, size_t count, const StrataAlteration *alteration);
#define STRATA_ROW_GOES (-1)
/* New indexes of a table, made while others change it:
     begin    nobody has the table open for a statement, nor an open transaction that has written to it
     run      the long part; others may change the table
     end      as for begin, from here to the commit
     commit   builds of the partitions of one table, all or none: the tables get their indexes and are to be opened again
   Freed, or not committed, a build leaves nothing. */
typedef struct {
  uint8_t *record;            /* a row of the table is put here */
  uint8_t *made;              /* the record of the new definition that `make` makes of it; `record` itself if that is null */
  int (*make)(void *ctx, int again); /* 0: done; STRATA_ROW_GOES: there is to be no such row. Otherwise the server has told the error.
                                        `again`: it made the record of this row before, and is to make the same one without a word */
  void (*tell)(void *ctx, const char *step, uint64_t done, uint64_t of);
  void *ctx;
} StrataRows;
int strata_build_begin(StrataStore *store, StrataTable *table, const StrataAlteration *alteration, StrataBuild **build);
/* *duplicate_index gets the violated index of the new definition with STRATA_DUPLICATE; `made` is then the record of such a row. */
int strata_build_run(StrataBuild *build, const StrataRows *rows, int32_t *duplicate_index);
int strata_build_end(StrataBuild *build, const StrataRows *rows, int32_t *duplicate_index);
int strata_build_commit(StrataStore *store, StrataBuild *const *builds, size_t count, const StrataAlteration *alteration);
void strata_build_free(StrataBuild *build); /* null: nothing */
/* The version of a table's definition, or of those of its partitions. */
int strata_table_version(StrataStore *store, const char *name, uint8_t *version);
/* Foreign keys of a table: those it has, or, as_parent, those that refer to it. */
int strata_table_references(StrataTable *table, int as_parent, void (*emit)(void *ctx, const StrataReference *key), void *ctx);
/* A byte that is not 0 while the table has foreign keys or is named by some; to be loaded as it is. Valid while the table is open. */
const uint8_t *strata_table_related(const StrataTable *table);
/* Does any refer to the table, has it any, has it any that rows put into it are checked against? */
enum StrataRelation { STRATA_IS_PARENT = 0, STRATA_IS_CHILD = 1, STRATA_IS_CHECKED = 2 };
int strata_table_relation(const StrataTable *table, uint32_t which);
int strata_is_parent(const StrataStore *store, const char *name); /* do keys of other tables name this one? */
/* Is it known of a table which of its rows are of the past? Not of one that an earlier build has made. */
int strata_knows_versions(const StrataStore *store, const char *name);
/* What the last failure of this thread was about: STRATA_NOT_FOUND, or a length of 0, if it was about nothing of the kind. */
int strata_failed_reference(const StrataStore *store, void (*emit)(void *ctx, const StrataReference *key), void *ctx);
size_t strata_failed_name(uint32_t which, char *buf, size_t cap);
/* At start, after the server's DDL recovery: temporary tables of the last run, and tables without a definition in the server. */
int strata_temporary_drop_all(StrataStore *store);

/* ---- sessions and transactions ------------------------------------------------------------------------------------------ */
enum StrataIsolation { STRATA_READ_UNCOMMITTED = 0, STRATA_READ_COMMITTED = 1, STRATA_REPEATABLE_READ = 2, STRATA_SERIALIZABLE = 3 };
int strata_session_new(StrataStore *store, const void *thd, StrataSession **session);
void strata_session_free(StrataSession *session);          /* rolls back what is open, unless prepared: then detaches it */
void strata_session_kill(StrataSession *session);          /* any thread: wakes a lock wait, ends long scans */
/* Begins a transaction if none is open, sets the statement savepoint. Called at the first external_lock/start_stmt of a
   statement; repeating within a statement is harmless. `present`: seconds since 1970 by the statement's clock; rows that expired by
   then (TTL) are not seen. */
int strata_statement_begin(StrataSession *session, uint32_t isolation, uint64_t lock_wait_timeout_us, uint64_t present);
/* Beside the isolation: locking a row that has changed since the snapshot is a STRATA_CONFLICT, from REPEATABLE READ on; foreign
   keys are not checked and do not cascade; rows that have expired are seen like others, since the statement repeats what was done to
   rows elsewhere. */
enum { STRATA_SNAPSHOT_ISOLATION = 16, STRATA_NO_FOREIGN_KEY_CHECKS = 32, STRATA_SEES_EXPIRED = 64 };
void strata_session_connection(StrataSession *session, uint64_t connection); /* its number, for reports */
/* Before another table, or none, comes to be under a name that foreign keys refer to: waits for transactions that rely on the one
   that there is, and keeps others away until the transaction ends. In a statement. */
int strata_session_lock_name(StrataSession *session, const char *name);
int strata_statement_end(StrataSession *session);          /* success: drops the savepoint and an RC snapshot */
int strata_statement_rollback(StrataSession *session);     /* undoes the statement's writes; locks stay */
/* Durable per flush_log. users: the id is not the server's own, so after a crash the server cannot tell what was decided. */
int strata_prepare(StrataSession *session, const uint8_t *xid, size_t xid_len, int users);
void strata_commit_ordered(StrataSession *session);        /* after prepare; fixes the order; no I/O, cannot fail */
int strata_commit(StrataSession *session);                 /* finishes after commit_ordered, or does it all (one phase) */
int strata_rollback(StrataSession *session);
int strata_savepoint_set(StrataSession *session, uint64_t *savepoint);
int strata_savepoint_rollback(StrataSession *session, uint64_t savepoint);
/* Before strata_statement_begin: a transaction that begins with the statement reads this moment, in seconds since 1970, wherever it reads
   without locks. Nothing happens within a transaction. */
int strata_read_past(StrataSession *session, uint64_t moment);
/* Does the transaction read the past? */
int strata_reads_past(const StrataSession *session);
/* Whether a transaction that reads the past may write to a table: only if it was created since. */
int strata_check_past_write(StrataSession *session, const StrataTable *table);
int strata_consistent_snapshot(StrataSession *session, uint32_t isolation); /* START TRANSACTION WITH CONSISTENT SNAPSHOT */
/* Crash recovery and user XA. `emit` is called once per prepared transaction that no session holds. */
/* At the start, before the server opens its log: decides about transactions that the server has prepared, unless it will do so
   itself. Names of the index of the binary logs (NULL: there are none) and of the log that serves without them; whether
   the server has recovered already. */
int strata_settle_prepared(StrataStore *store, const char *binlog_index, const char *tc_log, int is_over);
void strata_binlog_rotated(StrataStore *store); /* another file is written from now on, or in a moment */
/* While the server decides at a start, a rollback takes place at the next call of strata_prepared_list, which is when its log is as it is to be. */
int strata_prepared_list(StrataStore *store, void (*emit)(void *ctx, const uint8_t *xid, size_t len), void *ctx);
int strata_commit_by_xid(StrataStore *store, const uint8_t *xid, size_t len);   /* STRATA_NO_XID if unknown */
int strata_rollback_by_xid(StrataStore *store, const uint8_t *xid, size_t len);

/* ---- rows ---------------------------------------------------------------------------------------------------------------- */
int strata_cursor_new(StrataTable *table, StrataCursor **cursor);
void strata_cursor_free(StrataCursor *cursor);
/* Which locks reading a table takes: a StrataLock. `in_transaction`: not an autocommitted statement of its own. */
enum StrataRequest { STRATA_READ = 0, STRATA_READ_SHARED = 1 /* LOCK IN SHARE MODE */, STRATA_WRITE = 2 /* or FOR UPDATE */ };
enum StrataStatement { STRATA_QUERY = 0 /* SELECT */, STRATA_CHANGE = 1 /* changes data by what it reads */, STRATA_OTHER = 2 };
uint32_t strata_lock_of(uint32_t request, uint32_t statement, uint32_t isolation, int in_transaction);
enum StrataLock { STRATA_LOCK_NONE = 0 /* consistent read */, STRATA_LOCK_SHARED = 1, STRATA_LOCK_EXCLUSIVE = 2 };
enum StrataWait { STRATA_WAIT = 0, STRATA_NOWAIT = 1, STRATA_SKIP_LOCKED = 2 };
/* How the cursor reads from now on (set in external_lock / start_stmt). Locking reads see the latest committed row.
   session NULL: the cursor lets go of the engine's memory and files but keeps its place in an open scan (F_UNLCK, HANDLER). */
void strata_cursor_mode(StrataCursor *cursor, StrataSession *session, uint32_t lock, uint32_t wait);
/* Semi-consistent reads, where the isolation level allows them: a scan gives out rows that others have locked, unlocked. If the
   last row is such a one (is_unlocked), the next read gives it again, locked, unless strata_unlock_row came before. */
void strata_cursor_semi_consistent(StrataCursor *cursor, int on);
int strata_cursor_is_unlocked(StrataCursor *cursor);
/* Columns to fill on reads: bitmap as MY_BITMAP's words (bit i = column i); NULL = all stored columns. Copied. */
void strata_cursor_columns(StrataCursor *cursor, const uint64_t *bits, size_t bit_count);
/* Pushed index condition / rowid filter: called with the index columns decoded into the record of the running call.
   check returns: 0 reject, 1 accept, 2 out of range (ends the scan), 3 aborted, 4 error. NULL removes. */
void strata_cursor_condition(StrataCursor *cursor, int (*check)(void *ctx), void *ctx);

enum StrataSeek { STRATA_SEEK_EXACT = 0, STRATA_SEEK_GE = 1, STRATA_SEEK_GT = 2, STRATA_SEEK_LE = 3, STRATA_SEEK_LT = 4,
                  STRATA_SEEK_LAST_IN_PREFIX = 5, STRATA_SEEK_LAST_IN_PREFIX_OR_PREV = 6, STRATA_SEEK_FIRST = 7, STRATA_SEEK_LAST = 8 };
/* Index scan. `index` counts as in the definition; -1 = the table scan order (clustered key or hidden row id).
   `key_only`: fill only columns of the index and the primary key (covering read), never fetch the row. */
int strata_scan_begin(StrataCursor *cursor, int32_t index, int key_only);
void strata_scan_end(StrataCursor *cursor);
/* At the end of a statement: the BLOBs of the row read last may go. Scans go on. */
void strata_cursor_forget_values(StrataCursor *cursor);
/* Modes as HA_READ_*: prefixes compare as wholes (SEEK_GT skips all rows with the prefix, SEEK_LE may stop at its last).
   key = key image of the leading parts, key_len its bytes (0 with FIRST/LAST). */
int strata_seek(StrataCursor *cursor, uint32_t mode, const uint8_t *key, uint32_t key_len, uint8_t *record);
int strata_next(StrataCursor *cursor, uint8_t *record);
int strata_prev(StrataCursor *cursor, uint8_t *record);
int strata_next_same(StrataCursor *cursor, uint8_t *record);   /* same leading parts as the last strata_seek */
/* Optional range end for forward scans, to spare work beyond it; NULL removes. Key image as in strata_seek. */
int strata_scan_bound(StrataCursor *cursor, const uint8_t *key, uint32_t key_len, int inclusive);
/* From now on rows are inserted into a table that nobody else may see before the transaction ends. */
void strata_cursor_fills(StrataCursor *cursor, int on);

/* Row references: strata_ref_length bytes; comparable with strata_ref_compare in clustered order. */
uint32_t strata_ref_length(const StrataTable *table);
int strata_position(StrataCursor *cursor, const uint8_t *record, uint8_t *ref);  /* from the record, or hidden id of the current row */
int strata_read_position(StrataCursor *cursor, const uint8_t *ref, uint8_t *record);
int strata_ref_compare(const StrataTable *table, const uint8_t *a, const uint8_t *b);
void strata_unlock_row(StrataCursor *cursor);              /* the row just read did not match (READ COMMITTED releases it) */

/* Writes. *duplicate_index gets the violated index with STRATA_DUPLICATE. A failed call leaves no partial change. */
int strata_insert(StrataCursor *cursor, const uint8_t *record, int32_t *duplicate_index);
int strata_update(StrataCursor *cursor, const uint8_t *old_record, const uint8_t *new_record, int32_t *duplicate_index);
int strata_delete(StrataCursor *cursor, const uint8_t *record);
/* Filling a table that nobody else can see (ALTER by copy, CREATE ... SELECT): rows go past locks and the session's transaction.
 * A read or a change of a row ends the fill. */
int strata_bulk_begin(StrataCursor *cursor);
int strata_bulk_end(StrataCursor *cursor, int abort, int32_t *duplicate_index);

/* ---- auto-increment: never goes back, survives restart --------------------------------------------------------------------- */
uint64_t strata_autoinc_next(StrataTable *table);          /* the value the next insert would get; 0 = column has none */
int strata_autoinc_reserve(StrataTable *table, uint64_t offset, uint64_t increment, uint64_t count, uint64_t max_value, uint64_t *first);
int strata_autoinc_raise(StrataTable *table, uint64_t used); /* an explicit value was stored */
/* The smallest value >= next that is `offset` more than a multiple of `increment`; 0: there is none. */
uint64_t strata_autoinc_align(uint64_t next, uint64_t offset, uint64_t increment);
int strata_autoinc_set(StrataTable *table, uint64_t next);   /* ALTER TABLE ... AUTO_INCREMENT = n */

/* ---- results of queries that the server keeps -------------------------------------------------------------------------------- */
/* What a result of a query on the table of this name may be kept under, or a kept one be handed out: another number after each change of the
   table. STRATA_NOT_FOUND where neither is allowed. `session`: null if the query is a transaction of its own; `one_snapshot`: all reads
   of the transaction are of one snapshot, which is taken now if there is none. */
int strata_result_version(StrataStore *store, const char *name, size_t len, StrataSession *session, int one_snapshot,
                          uint64_t *version);

/* ---- what one thread does -------------------------------------------------------------------------------------------------------- */
typedef struct {
  uint64_t blocks;           /* blocks of table files that were looked up */
  uint64_t blocks_read;      /* those of them that were read from the disk */
  uint64_t read_ns;          /* time of these reads */
  uint64_t versions_passed;  /* versions that scans stepped over */
  uint64_t entries_written;  /* rows and index entries written by the transaction */
} StrataCounts;
/* What the calling thread does in the engine from now on is counted, until strata_counting_end tells it. `begun` is filled here and
   taken there. */
void strata_counting_begin(StrataCounts *begun);
void strata_counting_end(const StrataCounts *begun, StrataCounts *done);

/* ---- statistics, maintenance -------------------------------------------------------------------------------------------------- */
typedef struct { uint64_t rows, data_bytes, index_bytes, deleted_bytes; uint32_t mean_row_bytes; uint64_t create_time; /* Unix s */
                 uint64_t update_time; /* Unix s of the last commit since the start; 0: none */
                 uint32_t sample_is_old; /* ask for rec_per_key again */ } StrataStats;
int strata_table_stats(StrataTable *table, StrataStats *stats);
/* Rows per distinct value for 1..n leading parts, primary-key suffix included; fills at most cap entries, returns count in *n. */
int strata_rec_per_key(StrataTable *table, uint32_t index, double *out, size_t cap, size_t *n);
/* Estimate of rows between two key images (NULL = open); flags: bit0 low inclusive, bit1 high inclusive. */
int strata_records_in_range(StrataCursor *cursor, uint32_t index, const uint8_t *low, uint32_t low_len,
                            const uint8_t *high, uint32_t high_len, uint32_t flags, uint64_t *rows);
int strata_table_analyze(StrataCursor *cursor);            /* takes a sample of each index; a kill ends it */
/* Brings the table's key ranges into the last level, without what nobody reads; others read and write meanwhile, a kill ends it. `tell`
   hears how far it is: indexes done, of how many, bytes of the next one done, of how many (0: not known yet). */
int strata_table_optimize(StrataCursor *cursor, void (*tell)(void *ctx, uint32_t index, uint32_t indexes, uint64_t done, uint64_t of),
                          void *ctx);
/* Waits for the end of prepared transactions without a session that have written to the table, which is to be altered or locked as a
   whole: before that it is refused. STRATA_LOCK_TIMEOUT, STRATA_INTERRUPTED. */
int strata_table_await_prepared(StrataTable *table, uint64_t wait_us);
/* Verifies checksums and that each index agrees with the rows; findings as lines through emit. Of a table that is well, `warn` gets a line
   for each foreign key by which rows have no parent. `compute` (may be null) computes
   the virtual columns that indexes have, in a record with all others, and returns 0; what it leaves in the record stays valid
   until the next call. */
int strata_table_check(StrataCursor *cursor, int quick, int (*compute)(void *ctx, uint8_t *record),
                       void (*emit)(void *ctx, const char *line, size_t len), void (*warn)(void *ctx, const char *line, size_t len),
                       void (*tell)(void *ctx, const char *step, uint64_t done, uint64_t of), void *ctx);

#ifdef __cplusplus
}
#endif
#endif
