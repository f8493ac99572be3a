"""Drives a served SmolLM2 with the official openai Python client. Usage: openai_check.py BASE_URL MODEL"""
import sys

import openai

base, model = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=base, api_key="any", max_retries=0, timeout=120)
ask = [{"role": "user", "content": "Which city is the capital of France?"}]


def check(ok, what):
    if not ok:
        sys.exit(f"FAIL: {what}")
    print("ok:", what)


ids = [m.id for m in client.models.list()]
check(model in ids, f"models lists {model}: {ids}")

r = client.chat.completions.create(model=model, messages=ask, temperature=0, max_tokens=24)
text = r.choices[0].message.content
check("Paris" in text, f"chat names Paris: {text!r}")
check(r.model == model, f"the reply carries the served name: {r.model}")
check(r.choices[0].finish_reason in ("stop", "length"), f"finish reason {r.choices[0].finish_reason}")
check(r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens, f"usage adds up: {r.usage}")
check(r.id.startswith("chatcmpl-"), f"id {r.id}")

pieces, finish, usages, ids_seen, names = [], [], [], set(), set()
stream = client.chat.completions.create(
    model=model, messages=ask, temperature=0, max_tokens=24, stream=True, stream_options={"include_usage": True})
for c in stream:
    ids_seen.add(c.id)
    names.add(c.model)
    if c.usage:
        check(c.choices == [], "the usage chunk has no choices")
        usages.append(c.usage)
        continue
    if c.choices[0].delta.content:
        pieces.append(c.choices[0].delta.content)
    if c.choices[0].finish_reason:
        finish.append(c.choices[0].finish_reason)
check("".join(pieces) == text, f"the stream says the same: {''.join(pieces)!r}")
check(len(pieces) > 3, f"{len(pieces)} pieces")
check(len(finish) == 1 and len(usages) == 1, f"one finish reason, one usage: {finish}, {len(usages)}")
check(len(ids_seen) == 1 and names == {model}, f"one id, one name: {ids_seen} {names}")
check(usages[0].prompt_tokens == r.usage.prompt_tokens, "the same prompt tokens")
cached = usages[0].prompt_tokens_details.cached_tokens
check(cached > 0, f"the second request reused {cached} prompt tokens")

for c in client.chat.completions.create(model=model, messages=ask, temperature=0, max_tokens=4, stream=True):
    check(len(c.choices) == 1 and c.usage is None, "without the option no usage chunk")

r = client.chat.completions.create(
    model=model, messages=ask, temperature=0, max_tokens=5, logprobs=True, top_logprobs=3)
lp = r.choices[0].logprobs.content
check(len(lp) == r.usage.completion_tokens and all(len(t.top_logprobs) == 3 for t in lp), "logprobs for each token")
check(all(t.logprob <= 0 for t in lp), "log-probabilities are not positive")

r = client.completions.create(model=model, prompt="The capital of France is", max_tokens=8, temperature=0)
check(len(r.choices[0].text) > 0, f"completion: {r.choices[0].text!r}")

r = client.chat.completions.create(model=model, messages=ask, temperature=0, max_tokens=24, stop=["Paris"])
check("Paris" not in r.choices[0].message.content and r.choices[0].finish_reason == "stop", "a stop string is not in the text")

two = [client.chat.completions.create(model=model, messages=ask, seed=7, temperature=0.9, max_tokens=12).choices[0].message.content
       for _ in range(2)]
check(two[0] == two[1], f"a seed repeats itself: {two}")

try:
    client.chat.completions.create(model=model, messages=[{"role": "user", "content": "word " * 20000}], max_tokens=4)
    check(False, "a prompt over the context is refused")
except openai.BadRequestError as e:
    check("maximum context length" in str(e), f"overflow: {e}")
    check(e.body["n_prompt_tokens"] > e.body["n_ctx"] > 0, f"overflow carries counts: {e.body}")
    check(e.response.headers.get("x-request-id"), "errors carry x-request-id")
for bad, field in [({"messages": []}, "messages"), ({"messages": ask, "max_tokens": -5}, "max_tokens"),
                   ({"messages": [{"role": "wizard", "content": "x"}]}, "role"), ({"messages": ask, "temperature": "hot"}, "temperature")]:
    try:
        client.chat.completions.create(model=model, extra_body=bad, **({"messages": ask} | {}))
        check(False, f"{bad} is refused")
    except openai.BadRequestError as e:
        check(field in str(e), f"{field} is named: {e}")

with client.chat.completions.create(model=model, messages=ask, max_tokens=400, stream=True) as s:
    for i, c in enumerate(s):
        if i == 3:
            break
r = client.chat.completions.create(model=model, messages=ask, temperature=0, max_tokens=24)
check(r.choices[0].message.content == text, "the same answer after a stream that was left")
print("PASS")
