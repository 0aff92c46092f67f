// obscenity with its English preset.
import { createInterface } from "node:readline";
import obscenity from "obscenity";

const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
console.log = console.info = console.warn = console.error;
const { RegExpMatcher, englishDataset, englishRecommendedTransformers } = obscenity;
const matcher = new RegExpMatcher({ ...englishDataset.build(), ...englishRecommendedTransformers });
const check = (text) => ({ blocked: matcher.hasMatch(text) });

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { id, text } = JSON.parse(line);
  try {
    say({ id, ...(await check(text)) });
  } catch (error) {
    say({ id, error: String(error) });
  }
}
