-- Values that guardmark never writes, a table each: of another type, beyond what a run can have, of
-- nothing that is there. SQLite keeps any type in any column; numbers are below text, and text is
-- below bytes, so a range of numbers tells of types too. Nothing (NULL) is right everywhere.

meta: key NOT IN ('head', 'loop_load', 'manifest', 'planned', 'possibly_billed', 'remarks', 'samples', 'seals', 'sessions', 'state') OR value >= x'';

words: kind >= x'' OR id | 0 <> id OR name >= x'';

defenses: id | 0 <> id OR name >= x'';

layers: id | 0 <> id OR name >= x'' OR settings >= x'';

kinds: id | 0 <> id OR is_attack NOT BETWEEN 0 AND 2 OR category >= x'' OR subcategory >= x''
    OR severity >= x'' OR language >= x'' OR variant >= x'' OR technique >= x'' OR source >= x'';

samples: position NOT BETWEEN 0 AND (SELECT count(*) - 1 FROM samples) OR id >= x''
    OR kind NOT IN (SELECT id FROM kinds) OR origin >= x''
    OR length NOT BETWEEN 0 AND 4611686018427387904 OR digest < x'' OR text >= x'' OR prompt >= x''
    OR rest >= x'';

batches: id | 0 <> id OR rows | 0 <> rows OR hash < x'';

records: defense NOT IN (SELECT id FROM defenses) OR stage NOT BETWEEN 0 AND 5
    OR layer NOT IN (SELECT id FROM layers) OR repeat NOT BETWEEN 0 AND 1048576
    OR sample NOT BETWEEN 0 AND (SELECT count(*) - 1 FROM samples) OR outcome NOT BETWEEN 0 AND 6
    OR score NOT BETWEEN 0 AND 1 OR score_kind NOT BETWEEN 0 AND 8
    OR error_kind NOT BETWEEN 0 AND 7 OR answer_mode NOT BETWEEN 0 AND 3
    OR latency_ns NOT BETWEEN 0 AND 4611686018427387904 OR flags NOT BETWEEN 0 AND 1048576
    OR batch | 0 <> batch OR said | 0 <> said;

details: defense NOT IN (SELECT id FROM defenses) OR stage NOT BETWEEN 0 AND 5
    OR layer NOT IN (SELECT id FROM layers) OR repeat NOT BETWEEN 0 AND 1048576
    OR sample NOT BETWEEN 0 AND (SELECT count(*) - 1 FROM samples) OR batch | 0 <> batch
    OR text >= x'' OR evidence >= x'' OR json_type(evidence) <> 'object'
    OR instr(evidence, char(10));

sayings: id | 0 <> id OR evidence >= x'' OR json_type(evidence) <> 'object' OR instr(evidence, char(10))
    OR batch | 0 <> batch;

tries: defense NOT IN (SELECT id FROM defenses) OR layer NOT IN (SELECT id FROM layers)
    OR number NOT BETWEEN 0 AND 4611686018427387904
    OR sample NOT BETWEEN 0 AND (SELECT count(*) - 1 FROM samples) OR batch | 0 <> batch
    OR account >= x'' OR round >= x'' OR chain >= x'' OR tier >= x'' OR digest >= x''
    OR size | 0 <> size OR decoded | 0 <> decoded OR resend_of | 0 <> resend_of
    OR is_free | 0 <> is_free OR outcome NOT BETWEEN 0 AND 6 OR score NOT BETWEEN 0 AND 1
    OR score_kind NOT BETWEEN 0 AND 8 OR error_kind NOT BETWEEN 0 AND 7
    OR answer_mode NOT BETWEEN 0 AND 3 OR latency_ns NOT BETWEEN 0 AND 4611686018427387904
    OR flags NOT BETWEEN 0 AND 1048576 OR details >= x'' OR evidence >= x''
    OR json_type(evidence) <> 'object' OR instr(evidence, char(10));

confirmations: defense NOT IN (SELECT id FROM defenses) OR layer NOT IN (SELECT id FROM layers)
    OR number NOT BETWEEN 0 AND 4611686018427387904
    OR sample NOT BETWEEN 0 AND (SELECT count(*) - 1 FROM samples) OR batch | 0 <> batch
    OR sent | 0 <> sent OR passed | 0 <> passed OR is_confirmed | 0 <> is_confirmed;

superseded: id | 0 <> id OR defense NOT IN (SELECT id FROM defenses) OR stage NOT BETWEEN 0 AND 5
    OR layer NOT IN (SELECT id FROM layers) OR repeat NOT BETWEEN 0 AND 1048576
    OR sample NOT BETWEEN 0 AND (SELECT count(*) - 1 FROM samples) OR batch | 0 <> batch
    OR outcome NOT BETWEEN 0 AND 6 OR score NOT BETWEEN 0 AND 1 OR score_kind NOT BETWEEN 0 AND 8
    OR error_kind NOT BETWEEN 0 AND 7 OR answer_mode NOT BETWEEN 0 AND 3
    OR latency_ns NOT BETWEEN 0 AND 4611686018427387904 OR flags NOT BETWEEN 0 AND 1048576
    OR text >= x'' OR evidence >= x'' OR json_type(evidence) <> 'object'
    OR instr(evidence, char(10));
