"""Checks a server with the official anthropic client: python anthropic_check.py BASE_URL MODEL [ROOT_PEM KEY]"""

import ssl
import sys

import anthropic

base, model = sys.argv[1:3]
root, key = (sys.argv[3:5] + ["", "any"])[:2]
http = anthropic.DefaultHttpxClient(verify=ssl.create_default_context(cafile=root), timeout=300) if root else None
client = anthropic.Anthropic(base_url=base, api_key=key or "any", max_retries=0, timeout=300, http_client=http)


def refused(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise SystemExit(f"it is not refused with {kind.__name__}")


question = dict(model=model, max_tokens=24, extra_body={"temperature": 0}, messages=[{"role": "user", "content": "What is the capital of France?"}])

# plain, and a name of Anthropic's
for name in (model, "claude-haiku-4-5"):
    m = client.messages.create(**{**question, "model": name})
    assert m.type == "message" and m.role == "assistant" and m.id.startswith("msg_") and m.model == model, m
    assert m.content[0].type == "text" and "Paris" in m.content[0].text, m
    assert m.stop_reason in ("end_turn", "max_tokens") and m.stop_sequence is None, m
    assert m.usage.output_tokens > 0 and m._request_id, m
whole = m.content[0].text

# streamed: the same words, and every event in its order
kinds, text = [], ""
with client.messages.stream(**question) as stream:
    for e in stream:
        kinds.append(e.type)
        if e.type == "text":
            text += e.text
    final = stream.get_final_message()
raw = [k for k in kinds if k in ("message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop")]
assert raw == ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"], kinds
assert text == whole == final.content[0].text and final.stop_reason == m.stop_reason, (text, whole)
starts = [e for e in client.messages.create(**question, stream=True) if e.type == "message_start"]
u = starts[0].message.usage
assert u.input_tokens + u.cache_read_input_tokens > 5, u

# counted as answered; what was read from the cache is no input
count = client.messages.count_tokens(model=model, messages=question["messages"]).input_tokens
u = final.usage
assert u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens == count, (u, count)
assert u.cache_read_input_tokens > 5, u
system = [{"type": "text", "text": "You are kind. " * 40, "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "Be brief."}]
marked = client.messages.create(**question, system=system).usage
counted = client.messages.count_tokens(model=model, system=system, messages=question["messages"]).input_tokens
assert marked.input_tokens + marked.cache_read_input_tokens + marked.cache_creation_input_tokens == counted > 160, (marked, counted)

if root:  # a box keeps what is marked, and says so
    assert marked.cache_creation_input_tokens > 100, marked
    again = client.messages.create(**question, system=system).usage
    assert again.cache_read_input_tokens > 100 and again.cache_creation_input_tokens == 0, again

# stop sequences say which one fired
m = client.messages.create(**question, stop_sequences=["nonsense", "Paris"])
assert m.stop_reason == "stop_sequence" and m.stop_sequence == "Paris" and "Paris" not in m.content[0].text, m
m = client.messages.create(**{**question, "max_tokens": 2})
assert m.stop_reason == "max_tokens" and m.usage.output_tokens == 2, m

# a turn of an agent: thoughts, calls, results, tiny budgets, betas that nobody knows
m = client.messages.create(
    model=model,
    max_tokens=8,
    thinking={"type": "enabled", "budget_tokens": 1},
    tools=[{"name": "look", "description": "looks", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}],
    tool_choice={"type": "auto", "disable_parallel_tool_use": True},
    metadata={"user_id": "u"},
    extra_body={"context_management": {"edits": []}, "some_beta": True},
    extra_headers={"anthropic-beta": "a-2026-01-01,b"},
    messages=[
        {"role": "user", "content": "Look around."},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "I look."}, {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "door"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": [{"type": "text", "text": "it is dark"}]}, {"type": "text", "text": "Go on."}]},
    ],
)
assert m.type == "message" and m.usage.output_tokens > 0, m

# refusals, each in the class that its status has
e = refused(anthropic.BadRequestError, lambda: client.messages.create(model=model, max_tokens=5, messages=[]))
assert e.body["type"] == "error" and e.body["error"]["type"] == "invalid_request_error" and e.body["request_id"] == e.request_id, e.body
e = refused(anthropic.BadRequestError, lambda: client.messages.create(model=model, max_tokens=5, messages=[{"role": "user", "content": "word " * 9000}]))
assert "prompt is too long" in e.message and "maximum context length" in e.message, e.message
e = refused(anthropic.BadRequestError, lambda: client.messages.create(model=model, max_tokens=5, messages=[{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "9d"}}]}]))
refused(anthropic.NotFoundError, lambda: client.models.retrieve("none"))

# models
page = client.models.list()
assert model in [m.id for m in page.data] and page.data[0].type == "model" and page.data[0].created_at, page
assert client.models.retrieve(model).display_name == model
if root:
    refused(anthropic.NotFoundError, lambda: client.messages.create(**{**question, "model": "gpt-5"}))
    other = anthropic.Anthropic(base_url=base, api_key="wrong", max_retries=0, http_client=http)
    e = refused(anthropic.AuthenticationError, lambda: other.messages.create(**question))
    assert e.body["error"]["type"] == "authentication_error", e.body
print("answer:", repr(whole))
print("PASS")
