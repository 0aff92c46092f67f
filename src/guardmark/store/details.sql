-- Answers that keep their requests, and whose they are (?1 is the stage of tries).
SELECT d.name, x.stage, l.name, x.evidence
FROM (
    SELECT defense, stage, layer, evidence FROM details
    UNION ALL
    SELECT defense, ?1, layer, evidence FROM tries
) AS x
JOIN defenses AS d ON d.id = x.defense
JOIN layers AS l ON l.id = x.layer
WHERE instr(x.evidence, '"attempts"')
ORDER BY x.defense, x.stage, x.layer;

-- How many answers a part gave: of a stage, a defense and a layer.
SELECT count(*)
FROM (
    SELECT defense, stage, layer FROM records
    UNION ALL
    SELECT defense, ?1, layer FROM tries WHERE NOT is_free
)
WHERE stage = ?2
    AND defense = (SELECT id FROM defenses WHERE name = ?3)
    AND layer = (SELECT id FROM layers WHERE name = ?4);
