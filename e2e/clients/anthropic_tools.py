"""Checks with the official anthropic client what a stand-in for a model does when it is told to:
python anthropic_tools.py BASE_URL"""

import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="any", max_retries=0, timeout=60)
tools = [{"name": n, "description": n, "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}} for n in ("weather", "clock")]


def ask(word, **more):
    return dict(model="m", max_tokens=99, tools=tools, messages=[{"role": "user", "content": f"{word} and?"}], **more)


# two calls at once, whole and streamed
whole = client.messages.create(**ask("!call!"))
with client.messages.stream(**ask("!call!")) as stream:
    kinds = [e.type for e in stream]
    streamed = stream.get_final_message()
for m in (whole, streamed):
    assert m.stop_reason == "tool_use", m
    assert [b.type for b in m.content] == ["text", "tool_use", "tool_use"], m
    assert [(b.name, b.id, b.input) for b in m.content[1:]] == [("weather", "call_1", {"city": "Paris"}), ("clock", "call_2", {})], m
    assert (m.usage.input_tokens, m.usage.cache_read_input_tokens, m.usage.output_tokens) == (5, 9, 7), m.usage
assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3, kinds

# thoughts, when they are asked for
with client.messages.stream(**ask("", thinking={"type": "enabled", "budget_tokens": 1024})) as stream:
    thought = stream.get_final_message()
assert [b.type for b in thought.content] == ["thinking", "text"] and thought.content[0].thinking == "Let me think." and thought.content[0].signature, thought
assert [b.type for b in client.messages.create(**ask("")).content] == ["text"]

# a failure in the midst of a stream is raised
try:
    with client.messages.stream(**ask("!error-event!")) as stream:
        stream.until_done()
    raise SystemExit("a broken stream was taken for whole")
except anthropic.APIStatusError as e:
    assert e.body["type"] == "error" and e.body["error"]["type"] == "api_error", e.body
# and so is one before its first byte
try:
    client.messages.create(**ask("!status:503!"))
    raise SystemExit("503 was taken for an answer")
except anthropic.APIStatusError as e:
    assert e.status_code == 529 and e.body["error"]["type"] == "overloaded_error", e.body
print("PASS")
