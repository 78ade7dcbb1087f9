CREATE DATABASE stored;
USE stored;
SET sql_mode='';
CREATE TABLE types (
  id INT AUTO_INCREMENT PRIMARY KEY, t TINYINT, u BIGINT UNSIGNED, d DECIMAL(20,5), f FLOAT, g DOUBLE,
  dt DATETIME(6), ts TIMESTAMP(3) NULL, da DATE, ti TIME(2), y YEAR, b BIT(13), e ENUM('x','y','z'), s SET('p','q','r'),
  c CHAR(7), v VARCHAR(60), vb VARBINARY(40), bi BINARY(6), tx TEXT, bl MEDIUMBLOB,
  KEY (t), KEY (u), KEY (d), KEY (f), KEY (g), KEY (dt), KEY (ts, da), KEY (ti, y, b), KEY (e, s), KEY (c), KEY (v(5) DESC),
  KEY (vb, bi), KEY (tx(9)), KEY (bl(6))) ENGINE=STRATA CHARSET=utf8mb4;
INSERT INTO types SELECT NULL, CAST(seq*37%256 AS SIGNED)-128, seq*7919, seq/7, seq*1.25, SQRT(seq), '2024-01-01' + INTERVAL seq*3607 SECOND, '2024-02-01 10:00:00' + INTERVAL seq MINUTE,
  '2020-01-01' + INTERVAL seq DAY, SEC_TO_TIME(seq*61), 1970+seq%80, seq%8192, 1+seq%3, seq%8, CONCAT('c',seq%13), CONCAT('Ärger ', seq*31%997), CONCAT('b',CHAR(seq%256)), CONCAT('bin',seq%5),
  REPEAT(CONCAT('text ', seq, ' '), seq%40), REPEAT(CHAR(seq%256), seq%3000) FROM seq_1_to_1500;
CREATE TABLE texts (id INT PRIMARY KEY, de VARCHAR(30) COLLATE utf8mb4_german2_ci, tr VARCHAR(30) COLLATE utf8mb4_unicode_ci, np VARCHAR(30) COLLATE utf8mb4_nopad_bin,
  la VARCHAR(30) CHARSET latin1, KEY (de), KEY (tr), UNIQUE (np, id), KEY (la(3))) ENGINE=STRATA CHARSET=utf8mb4;
INSERT INTO texts SELECT seq, CONCAT(ELT(1+seq%6,'straße','STRASSE','Öl','oel','ol ','Zebra'), seq%17), CONCAT(ELT(1+seq%4,'İ','i','ı','I'), seq%11), CONCAT('x', REPEAT(' ', seq%3)), CONCAT('la', seq%90) FROM seq_1_to_600;
CREATE TABLE generated (id INT PRIMARY KEY, a INT, v INT AS (a*2) VIRTUAL, w VARCHAR(20) AS (CONCAT('w', a)) STORED, KEY (v), KEY (w), KEY (a, v)) ENGINE=STRATA;
INSERT INTO generated (id, a) SELECT seq, seq*3%101 FROM seq_1_to_500;
CREATE TABLE hidden (a INT, b VARCHAR(10), UNIQUE (a), KEY (b)) ENGINE=STRATA;
INSERT INTO hidden SELECT IF(seq%5, seq, NULL), CONCAT('h', seq%23) FROM seq_1_to_400;
CREATE TABLE parts (id INT, k INT, s VARCHAR(20), PRIMARY KEY (id), KEY (k)) ENGINE=STRATA PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (200), PARTITION p1 VALUES LESS THAN (500), PARTITION p2 VALUES LESS THAN MAXVALUE);
INSERT INTO parts SELECT seq, seq*13%77, CONCAT('s', seq) FROM seq_1_to_800;
CREATE TABLE longs (id INT PRIMARY KEY, l TEXT, UNIQUE (l)) ENGINE=STRATA;
INSERT INTO longs SELECT seq, REPEAT(CONCAT('l', seq), 50) FROM seq_1_to_200;
CREATE TABLE versions (id INT PRIMARY KEY, x INT) ENGINE=STRATA WITH SYSTEM VERSIONING;
SET timestamp=1700000000; INSERT INTO versions SELECT seq, seq FROM seq_1_to_50;
SET timestamp=1700001000; UPDATE versions SET x=x+1 WHERE id<20; DELETE FROM versions WHERE id>45; SET timestamp=DEFAULT;
CREATE TABLE big (id INT PRIMARY KEY, b LONGBLOB) ENGINE=STRATA;
INSERT INTO big SELECT seq, REPEAT(CONCAT('big', seq), 600000) FROM seq_1_to_2;
CREATE SEQUENCE counter START 100 INCREMENT 7 ENGINE=STRATA;
SELECT NEXTVAL(counter), NEXTVAL(counter);
OPTIMIZE TABLE types, texts, generated, hidden, parts, longs, versions;
DELETE FROM types WHERE id%11=0; UPDATE types SET v=CONCAT('later ', id), u=u+1 WHERE id%7=0; INSERT INTO types (t, v) VALUES (1, 'only in the log'), (2, 'too');
UPDATE generated SET a=a+1000 WHERE id<50; DELETE FROM parts WHERE id BETWEEN 150 AND 250; UPDATE hidden SET b='log' WHERE a%3=0;
CREATE TABLE dropped (id INT PRIMARY KEY) ENGINE=STRATA; INSERT INTO dropped SELECT seq FROM seq_1_to_100; DROP TABLE dropped;
XA START 'kept'; INSERT INTO hidden VALUES (-1, 'xa'); UPDATE generated SET a=7 WHERE id=400; XA END 'kept'; XA PREPARE 'kept';
