"""Answers of a form, by the official openai client with pydantic models: python openai_forms.py BASE_URL MODEL [tools]
Whatever a small model has to say, it says it as JSON of the schema."""

import json
import sys
from enum import Enum
from typing import Optional

import openai
from pydantic import BaseModel, Field

base, model = sys.argv[1:3]
client = openai.OpenAI(base_url=base, api_key="any", max_retries=0, timeout=300)


def check(ok, what):
    if not ok:
        sys.exit(f"FAIL: {what}")
    print("ok:", what)


class Colour(str, Enum):
    red = "red"
    blue = "blue"


class Part(BaseModel):
    name: str = Field(max_length=12)
    count: int = Field(ge=1, le=40)


class Machine(BaseModel):
    title: str = Field(max_length=20)
    colour: Colour
    price: float = Field(ge=0, le=1000)
    maker: Optional[str] = Field(max_length=12)
    parts: list[Part] = Field(min_length=1, max_length=2)


ask = [{"role": "user", "content": "Describe a bicycle."}]
for temperature in (0, 1.2):
    r = client.chat.completions.parse(model=model, messages=ask, response_format=Machine, temperature=temperature, seed=5, max_tokens=300)
    check(r.choices[0].finish_reason == "stop" and isinstance(r.choices[0].message.parsed, Machine), f"parsed at {temperature}: {r.choices[0].message.content!r}")

with client.chat.completions.stream(model=model, messages=ask, response_format=Machine, temperature=0, max_tokens=300) as s:
    parsed = s.get_final_completion().choices[0].message.parsed
check(isinstance(parsed, Machine), f"streamed: {parsed}")

r = client.chat.completions.create(model=model, messages=ask, response_format={"type": "json_object"}, temperature=0, max_tokens=120)
text = r.choices[0].message.content
check(text.startswith("{") and (r.choices[0].finish_reason == "length" or isinstance(json.loads(text), dict)), f"an object: {text!r}")

try:
    client.chat.completions.create(model=model, messages=ask, max_tokens=8, response_format={"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"type": "object", "properties": {"a": {"type": "string", "not": {"const": "b"}}}}}})
    check(False, "a schema that cannot be held to is refused")
except openai.BadRequestError as e:
    check("#/properties/a/not" in str(e), f"refused: {e}")

weather = {"type": "function", "function": {"name": "get_weather", "description": "Tells the weather of a city", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 30}, "unit": {"enum": ["C", "F"]}}, "required": ["city", "unit"], "additionalProperties": False}}}
clock = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}
called = dict(model=model, messages=[{"role": "user", "content": "Tell me a joke."}], tools=[weather, clock], temperature=0, max_tokens=200)
if sys.argv[3:] == ["tools"]:
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        for stream in (False, True):
            if stream:
                with client.chat.completions.stream(**called, tool_choice=choice) as s:
                    r = s.get_final_completion()
            else:
                r = client.chat.completions.create(**called, tool_choice=choice, parallel_tool_calls=False)
            c = r.choices[0]
            check(c.finish_reason == "tool_calls" and c.message.tool_calls and not c.message.content, f"called: {c.message}")
            for t in c.message.tool_calls:
                got = json.loads(t.function.arguments)
                check(got == {} if t.function.name == "now" else set(got) == {"city", "unit"} and got["unit"] in "CF", f"{t.function.name}: {got}")
    check(c.message.tool_calls[0].function.name == "get_weather", "the named function")
else:
    try:
        client.chat.completions.create(**called, tool_choice="required")
        check(False, "a call is refused where the template has none")
    except openai.BadRequestError as e:
        check("tool_choice" in str(e), f"refused: {e}")
print("PASS")
