"""Counts and caches of a real server, by the official anthropic client: python anthropic_real.py BASE_URL
The model is of half a billion weights: it may write its call down as text, and needs not make sense of the result."""

import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="any", max_retries=0, timeout=300)
tool = {"name": "get_weather", "description": "The weather of a city.", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
asked = dict(
    model="claude-sonnet-5",
    max_tokens=64,
    extra_body={"temperature": 0},
    system=[{"type": "text", "text": "You answer with the help of tools.", "cache_control": {"type": "ephemeral"}}],
    tools=[{**tool, "cache_control": {"type": "ephemeral"}}],
    messages=[{"role": "user", "content": "What is the weather in Paris? Use get_weather."}],
)
count = client.messages.count_tokens(**{k: v for k, v in asked.items() if k not in ("max_tokens", "extra_body")}).input_tokens
for _ in range(2):
    with client.messages.stream(**asked) as stream:
        first = None
        for e in stream:
            if e.type == "message_start":
                first = e.message.usage.input_tokens + (e.message.usage.cache_read_input_tokens or 0)
        m = stream.get_final_message()
    u = m.usage
    assert first == count == u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens, (first, count, u)
assert u.cache_read_input_tokens > 0.9 * count, u
print(m.content, u)
call = m.content[-1]
if call.type == "text":
    assert "get_weather" in call.text and "Paris" in call.text, m
    call = anthropic.types.ToolUseBlock(type="tool_use", id="toolu_1", name="get_weather", input={"city": "Paris"})
    m.content, m.stop_reason = [call], "tool_use"
assert m.stop_reason == "tool_use" and call.type == "tool_use" and call.name == "get_weather" and call.input["city"].startswith("Paris"), m
after = client.messages.create(**{**asked, "messages": asked["messages"] + [
    {"role": "assistant", "content": [b.to_dict() for b in m.content]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny, 31 degrees"}]},
]})
print(after.content, after.usage)
assert after.content and after.usage.output_tokens > 0, after
assert after.usage.cache_read_input_tokens > 0.8 * count, after.usage
print("PASS")
