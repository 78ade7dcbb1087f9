CREATE TABLE types (
  id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  t TINYINT DEFAULT -5, ut TINYINT UNSIGNED ZEROFILL, s SMALLINT, m MEDIUMINT, um MEDIUMINT UNSIGNED, b BIGINT, ub BIGINT UNSIGNED DEFAULT 18446744073709551615,
  f FLOAT, d DOUBLE DEFAULT 1.5, f2 FLOAT(7,3), de DECIMAL(20,6) NOT NULL DEFAULT 12.500000, ud DECIMAL(10,0) UNSIGNED,
  y YEAR, da DATE DEFAULT '2020-02-29', ti TIME, ti3 TIME(3), ti6 TIME(6), dt DATETIME, dt2 DATETIME(2), dt6 DATETIME(6),
  ts TIMESTAMP NOT NULL DEFAULT current_timestamp() ON UPDATE current_timestamp(), ts6 TIMESTAMP(6) NULL,
  e ENUM('red','it''s','bl,ue') NOT NULL DEFAULT 'it''s', se SET('a','b','c','d','e','f','g','h','i') DEFAULT 'a,c',
  bi BIT(10) DEFAULT b'1010101010', c CHAR(10) DEFAULT 'abc', cb BINARY(8), v VARCHAR(40) NOT NULL DEFAULT 'it''s \\ ', vb VARBINARY(300),
  te TEXT, bl BLOB, ml MEDIUMTEXT, lb LONGBLOB, tb TINYBLOB, j JSON, po POINT, ge GEOMETRY, u UUID, i6 INET6, i4 INET4
) DEFAULT CHARSET=utf8mb4 COMMENT='all types; it''s a comment';
INSERT INTO types (t) VALUES (NULL);
INSERT INTO types (t, ut, s, m, um, b, ub, f, d, f2, de, ud, y, da, ti, ti3, ti6, dt, dt2, dt6, ts, ts6, e, se, bi, c, cb, v, vb, te, bl, ml, lb, tb, j, po, ge, u, i6, i4)
VALUES (-128, 7, -32768, -8388608, 16777215, -9223372036854775808, 0, -1.1e-30, 1e300, -1234.567, -12345678901234.567891, 4294967296, 2155, '1000-01-01', '-838:59:59', '-00:00:00.001', '23:59:59.999999', '9999-12-31 23:59:59', '2024-02-29 12:00:00.25', '0001-01-01 00:00:00.000001', '2038-01-19 03:14:07', '1970-01-01 00:00:01.000001', 'bl,ue', 'a,i', b'1', 'x', x'00ff00', 'end ', x'00275c0a0d1aff', 'grüße 😀', x'000102', REPEAT('long ', 20000), REPEAT(x'00ff', 100000), x'27', '{"a": 1}', POINT(1, 2), ST_GeomFromText('LINESTRING(0 0,1 1)'), 'f81d4fae-7dec-11d0-a765-00a0c91e6bf6', '2001:db8::1', '127.0.0.1'),
(127, 255, 32767, 8388607, 0, 9223372036854775807, 1, 3.14, -0.0, 0, 0, 0, 1901, '9999-12-31', '00:00:00', '838:59:59', '-01:02:03.000004', '1000-01-01 00:00:00', '1999-12-31 23:59:59.99', '2000-01-01 00:00:00', '2000-01-01 00:00:00', NULL, 'red', '', b'0', '', '', '', '', '', '', '', '', '', '[]', NULL, NULL, '018f3b5c-7dec-7abc-8765-00a0c91e6bf6', '::', '0.0.0.0');
CREATE TABLE texts (
  name VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL, n INT NOT NULL,
  l VARCHAR(30) CHARACTER SET latin1 COLLATE latin1_swedish_ci DEFAULT 'é', u2 VARCHAR(30) CHARACTER SET ucs2, u16 CHAR(6) CHARACTER SET utf16,
  g VARCHAR(30) CHARACTER SET gbk, sj VARCHAR(30) CHARACTER SET sjis, k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_as_cs,
  en ENUM('ä','b') CHARACTER SET latin1, body TEXT CHARACTER SET utf8mb3,
  PRIMARY KEY (name, n DESC), UNIQUE KEY k (k, n), KEY prefix (body(10), l(5)), UNIQUE KEY whole (body)
) DEFAULT CHARSET=latin1;
INSERT INTO texts VALUES ('Abc', -1, 'é', 'ü2', 'x', '狗', 'ソ', 'Straße', 'ä', 'body é'), ('abc ', 2, 'naïve \\ ''', '', NULL, '', '', 'strasse', 'b', 'other'), ('', 3, NULL, NULL, '😀', NULL, NULL, NULL, NULL, NULL);
CREATE TABLE nokey (a INT, b VARCHAR(10));
INSERT INTO nokey VALUES (1, 'one'), (1, 'one'), (NULL, NULL), (2, '');
CREATE TABLE parts (id INT NOT NULL, v VARCHAR(20), PRIMARY KEY (id)) PARTITION BY HASH (id) PARTITIONS 3;
INSERT INTO parts SELECT seq, CONCAT('row ', seq) FROM seq_1_to_50;
CREATE TABLE parent (id INT NOT NULL, PRIMARY KEY (id));
CREATE TABLE child (id INT NOT NULL, p INT, PRIMARY KEY (id), KEY p (p), CONSTRAINT to_parent FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE SET NULL);
INSERT INTO parent VALUES (1), (2);
INSERT INTO child VALUES (1, 1), (2, NULL), (3, 2);
CREATE TABLE history (id INT NOT NULL, v INT, PRIMARY KEY (id)) WITH SYSTEM VERSIONING;
INSERT INTO history VALUES (1, 1), (2, 2);
UPDATE history SET v = 10 WHERE id = 1;
DELETE FROM history WHERE id = 2;
CREATE TABLE computed (id INT NOT NULL PRIMARY KEY, a INT, st INT GENERATED ALWAYS AS (a + 1) STORED, vi VARCHAR(20) GENERATED ALWAYS AS (CONCAT('v', a)) VIRTUAL, hid INT INVISIBLE DEFAULT 3, x VARCHAR(36) DEFAULT (CONCAT('x', '''')), CHECK (a > 0), KEY vi (vi), CONSTRAINT positive CHECK (hid > 0));
INSERT INTO computed (id, a) VALUES (1, 5), (2, NULL);
CREATE TABLE altered (id INT NOT NULL PRIMARY KEY, a SMALLINT);
INSERT INTO altered VALUES (1, -7), (2, NULL);
ALTER TABLE altered ADD COLUMN z VARCHAR(10) NOT NULL DEFAULT 'new' FIRST, MODIFY a INT, ALGORITHM=INSTANT;
INSERT INTO altered VALUES ('late', 3, 100000);
CREATE SEQUENCE numbers START WITH 5 INCREMENT BY 3 MAXVALUE 1000 CACHE 10 CYCLE ENGINE=STRATA;
DO NEXTVAL(numbers), NEXTVAL(numbers);
CREATE TABLE `we``ird-näme` (`sp ace` INT NOT NULL, `näme` INT COMMENT 'gr''ün', PRIMARY KEY (`sp ace`));
INSERT INTO `we``ird-näme` VALUES (1, 2);
CREATE TABLE big (id INT NOT NULL AUTO_INCREMENT, n INT NOT NULL, filler VARCHAR(300) NOT NULL, PRIMARY KEY (id), KEY n (n)) COMPRESSION='lz4';
-- checkpoint
DELETE FROM types WHERE id = 1;
INSERT INTO types (t) VALUES (42);
UPDATE texts SET l = 'changed' WHERE n = 3;
INSERT INTO parts VALUES (51, 'in the log');
INSERT INTO nokey VALUES (9, 'log');
UPDATE big SET n = -n WHERE id % 100 = 0;
DELETE FROM big WHERE id % 1000 = 7;
