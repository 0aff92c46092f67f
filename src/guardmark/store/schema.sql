-- The tables of records.sqlite. They are part of the file format: a statement of which more than blanks
-- changes needs a new schema version.

-- Single values: manifest, state, seal of the samples, end of the hash chain.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- What the integers of records stand for, so that the file explains itself.
CREATE TABLE words (
    kind TEXT NOT NULL,
    id INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;

CREATE TABLE defenses (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- Which judging or attack a record belongs to. `run` is the first.
CREATE TABLE layers (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL DEFAULT '{}'
);

-- What samples have in common. The columns of text are the facets, in their order. `is_attack` is
-- 1 for attacks, 0 for benign samples and 2 for unlabelled ones, which stand behind all others.
CREATE TABLE kinds (
    id INTEGER PRIMARY KEY,
    is_attack INTEGER NOT NULL,
    category TEXT NOT NULL,
    subcategory TEXT NOT NULL,
    severity TEXT NOT NULL,
    language TEXT NOT NULL,
    variant TEXT NOT NULL,
    technique TEXT NOT NULL,
    source TEXT NOT NULL
);

CREATE TABLE samples (
    position INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    origin TEXT,
    length INTEGER NOT NULL,
    digest BLOB NOT NULL,
    text TEXT NOT NULL,
    prompt TEXT,
    rest TEXT
);

-- A row a commit: the links of a hash chain.
CREATE TABLE batches (id INTEGER PRIMARY KEY, rows INTEGER NOT NULL, hash BLOB NOT NULL);

-- What was observed.
CREATE TABLE records (
    defense INTEGER NOT NULL,
    stage INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    repeat INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    score REAL,
    score_kind INTEGER NOT NULL,
    error_kind INTEGER,
    answer_mode INTEGER,
    latency_ns INTEGER,
    flags INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    said INTEGER,
    PRIMARY KEY (defense, stage, layer, repeat, sample)
) WITHOUT ROWID;

-- Text and evidence of a record, where there is more to say.
CREATE TABLE details (
    defense INTEGER NOT NULL,
    stage INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    repeat INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    text TEXT,
    evidence TEXT,
    UNIQUE (defense, stage, layer, repeat, sample)
);

-- Evidence that many records share (`records.said`).
CREATE TABLE sayings (id INTEGER PRIMARY KEY, evidence TEXT NOT NULL, batch INTEGER NOT NULL);

-- What an adaptive attacker sent, and the answer. `resend_of` is the number of the try whose text
-- was sent again.
CREATE TABLE tries (
    defense INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    number INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    account TEXT NOT NULL,
    round TEXT NOT NULL,
    chain TEXT,
    tier TEXT,
    digest TEXT NOT NULL,
    size INTEGER,
    decoded INTEGER,
    resend_of INTEGER,
    is_free INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    score REAL,
    score_kind INTEGER NOT NULL,
    error_kind INTEGER,
    answer_mode INTEGER,
    latency_ns INTEGER,
    flags INTEGER NOT NULL,
    details TEXT,
    evidence TEXT,
    PRIMARY KEY (defense, layer, number, sample)
) WITHOUT ROWID;

-- What came of a pass that was sent again.
CREATE TABLE confirmations (
    defense INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    number INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    sent INTEGER NOT NULL,
    passed INTEGER NOT NULL,
    is_confirmed INTEGER NOT NULL,
    PRIMARY KEY (defense, layer, number, sample)
) WITHOUT ROWID;

-- Records with words in place of integers.
CREATE VIEW results AS
SELECT d.name AS defense, st.name AS stage, l.name AS layer, r.repeat, r.sample AS position,
       s.id, CASE k.is_attack WHEN 1 THEN 'attack' WHEN 0 THEN 'benign' ELSE 'unlabelled' END AS label,
       k.category, o.name AS outcome, r.score, sk.name AS score_kind,
       e.name AS error_kind, a.name AS answer_mode, r.latency_ns / 1e6 AS latency_ms, r.flags
FROM records r
JOIN defenses d ON d.id = r.defense
JOIN layers l ON l.id = r.layer
JOIN samples s ON s.position = r.sample
JOIN kinds k ON k.id = s.kind
JOIN words o ON o.kind = 'outcome' AND o.id = r.outcome
JOIN words st ON st.kind = 'stage' AND st.id = r.stage
JOIN words sk ON sk.kind = 'score_kind' AND sk.id = r.score_kind
LEFT JOIN words e ON e.kind = 'error_kind' AND e.id = r.error_kind
LEFT JOIN words a ON a.kind = 'answer_mode' AND a.id = r.answer_mode;

-- Made when all samples are stored: an index that grows with them costs more.
CREATE UNIQUE INDEX samples_by_id ON samples (id);

-- Records as they were before a second attempt took their place, details included. Made when it is
-- first needed: the records mean the same without it.
CREATE TABLE IF NOT EXISTS superseded (
    id INTEGER PRIMARY KEY,
    defense INTEGER NOT NULL,
    stage INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    repeat INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    score REAL,
    score_kind INTEGER NOT NULL,
    error_kind INTEGER,
    answer_mode INTEGER,
    latency_ns INTEGER,
    flags INTEGER NOT NULL,
    text TEXT,
    evidence TEXT
);
