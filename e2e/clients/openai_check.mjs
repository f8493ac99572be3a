// Drives a served SmolLM2 with the official openai Node client. Usage: node openai_check.mjs BASE_URL MODEL
import OpenAI from "openai";

const [base, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: base, apiKey: "any", maxRetries: 0, timeout: 120_000 });
const messages = [{ role: "user", content: "Which city is the capital of France?" }];
const check = (ok, what) => {
  if (!ok) {
    console.error("FAIL:", what);
    process.exit(1);
  }
  console.log("ok:", what);
};

const ids = [];
for await (const m of client.models.list()) ids.push(m.id);
check(ids.includes(model), `models lists ${model}: ${ids}`);

const r = await client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 24 });
const text = r.choices[0].message.content;
check(text.includes("Paris"), `chat names Paris: ${text}`);
check(r.model === model, `the reply carries the served name: ${r.model}`);
check(r.usage.total_tokens === r.usage.prompt_tokens + r.usage.completion_tokens, "usage adds up");

let streamed = "", finish = 0, usage = 0;
const stream = await client.chat.completions.create({
  model, messages, temperature: 0, max_tokens: 24, stream: true, stream_options: { include_usage: true },
});
for await (const c of stream) {
  if (c.usage) {
    usage++;
    check(c.choices.length === 0, "the usage chunk has no choices");
    continue;
  }
  streamed += c.choices[0].delta.content ?? "";
  if (c.choices[0].finish_reason) finish++;
}
check(streamed === text, `the stream says the same: ${streamed}`);
check(finish === 1 && usage === 1, "one finish reason, one usage");

const done = await client.chat.completions
  .stream({ model, messages, temperature: 0, max_tokens: 24 })
  .finalChatCompletion();
check(done.choices[0].message.content === text, "the accumulating helper says the same");

try {
  await client.chat.completions.create({ model, messages: [{ role: "user", content: "word ".repeat(20000) }] });
  check(false, "a prompt over the context is refused");
} catch (e) {
  check(e instanceof OpenAI.BadRequestError && /maximum context length/.test(e.message), `overflow: ${e.message}`);
}
try {
  await client.chat.completions.create({ model, messages: [] });
  check(false, "no messages are refused");
} catch (e) {
  check(e instanceof OpenAI.BadRequestError && /messages/.test(e.message), `empty messages: ${e.message}`);
}

const left = await client.chat.completions.create({ model, messages, max_tokens: 400, stream: true });
let n = 0;
for await (const _ of left) if (++n === 3) break;
const again = await client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 24 });
check(again.choices[0].message.content === text, "the same answer after a stream that was left");
console.log("PASS");
