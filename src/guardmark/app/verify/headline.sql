-- Groups of one defense, :name, with the counts of its outcomes (0 allow, 1 block, 2 malformed,
-- 3 error, and 4 where another text went on in place of the one shown: flag 64). :a is the
-- threshold that reports were asked for, or null: a decision with a score then came to what it
-- comes to at that threshold.
SELECT
    name,
    is_attack,
    sum(outcome = 0),
    sum(outcome = 1),
    sum(outcome = 2),
    sum(outcome = 3),
    sum(outcome = 4)
FROM (
    SELECT
        coalesce(s.origin, s.id) AS name,
        k.is_attack,
        CASE
            WHEN a.outcome = 0 AND a.flags & 64 THEN 4
            WHEN a.outcome < 2 AND a.score IS NOT NULL AND :a IS NOT NULL THEN a.score >= :a
            ELSE a.outcome
        END AS outcome
    FROM records AS a
    JOIN samples AS s ON s.position = a.sample
    JOIN kinds AS k ON k.id = s.kind
    WHERE a.stage = 0
        AND k.is_attack < 2
        AND a.layer = (SELECT id FROM layers WHERE name = 'run')
        AND a.defense = (SELECT id FROM defenses WHERE name = :name)
)
GROUP BY name, is_attack
ORDER BY name;

-- Groups of the samples of a :label that two defenses decided, with how many only the :first and
-- only the :second got wrong (:error is the code of the wrong decision). :a and :b are as above.
SELECT
    count(*),
    sum(one = :error AND two != :error),
    sum(two = :error AND one != :error)
FROM (
    SELECT
        coalesce(s.origin, s.id) AS name,
        CASE
            WHEN a.outcome = 0 AND a.flags & 64 THEN 4
            WHEN a.outcome < 2 AND a.score IS NOT NULL AND :a IS NOT NULL THEN a.score >= :a
            ELSE a.outcome
        END AS one,
        CASE
            WHEN b.outcome = 0 AND b.flags & 64 THEN 4
            WHEN b.outcome < 2 AND b.score IS NOT NULL AND :b IS NOT NULL THEN b.score >= :b
            ELSE b.outcome
        END AS two
    FROM records AS a
    JOIN records AS b USING (stage, layer, repeat, sample)
    JOIN samples AS s ON s.position = a.sample
    JOIN kinds AS k ON k.id = s.kind
    WHERE stage = 0
        AND layer = (SELECT id FROM layers WHERE name = 'run')
        AND k.is_attack = :label
        AND a.defense = (SELECT id FROM defenses WHERE name = :first)
        AND b.defense = (SELECT id FROM defenses WHERE name = :second)
)
WHERE one < 2 AND two < 2
GROUP BY name;
