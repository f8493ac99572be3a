"""Asks documents with the official openai client: Responses with file_search, streamed and not, what goes on from a
response, and chats that are given passages:
python openai_responses.py BASE_URL ROOT_PEM KEY OTHER_KEY FOLDER MODEL EMBEDDER"""

import json
import os
import ssl
import sys

import openai

base, root, key, other, folder, model = sys.argv[1:7]


def connect(k):
    return openai.OpenAI(base_url=base, api_key=k, max_retries=0, http_client=openai.DefaultHttpxClient(verify=ssl.create_default_context(cafile=root), timeout=300))


client, stranger = connect(key), connect(other)


def refused(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise SystemExit(f"it is not refused with {kind.__name__}")


def names_of(notes):
    return [n["filename"] if isinstance(n, dict) else n.filename for n in notes]


store = client.vector_stores.create(name="House")
names = ["heating.md", "garden.html", "guests.docx", "costs.xlsx", "stories.epub", "alarm.eml", "boat.pdf"]
batch = client.vector_stores.file_batches.upload_and_poll(vector_store_id=store.id, files=[open(os.path.join(folder, n), "rb") for n in names])
assert batch.status == "completed", batch
tool = {"type": "file_search", "vector_store_ids": [store.id], "max_num_results": 3}

# a plain response
plain = client.responses.create(model=model, input="Say hello.", max_output_tokens=12, temperature=0)
assert plain.status in ("completed", "incomplete") and plain.output_text, plain
assert plain.usage.input_tokens > 0 and plain.usage.output_tokens > 0 and plain.usage.total_tokens == plain.usage.input_tokens + plain.usage.output_tokens, plain.usage
assert plain.output[0].content[0].annotations == []

# with citations
r = client.responses.create(model=model, input="What pressure should the boiler have?", tools=[tool], include=["file_search_call.results"], max_output_tokens=60, temperature=0)
search, message = r.output[0], r.output[-1]
assert search.type == "file_search_call" and search.status == "completed" and search.queries == ["What pressure should the boiler have?"], search
assert search.results[0].filename == "heating.md" and 0 < search.results[0].score <= 1 and search.results[0].text, search
assert message.type == "message" and r.output_text, r
notes = message.content[0].annotations
assert notes and all(n.type == "file_citation" and n.file_id and n.filename in names and 0 <= n.index <= len(r.output_text) for n in notes), notes
assert "heating.md" in [n.filename for n in notes], notes
print("answer:", repr(r.output_text), [(n.filename, n.index) for n in notes])

# the same, streamed
seen, number, text, final = [], -1, "", None
with client.responses.create(model=model, input="What pressure should the boiler have?", tools=[tool], max_output_tokens=60, temperature=0, stream=True) as stream:
    for e in stream:
        assert e.sequence_number == number + 1, e
        number = e.sequence_number
        if not seen or seen[-1] != e.type:
            seen.append(e.type)
        if e.type == "response.output_text.delta":
            text += e.delta
        if e.type in ("response.completed", "response.incomplete"):
            final = e.response
want = ["response.created", "response.in_progress", "response.output_item.added", "response.file_search_call.in_progress", "response.file_search_call.searching",
        "response.file_search_call.completed", "response.output_item.done", "response.output_item.added", "response.content_part.added", "response.output_text.delta"]
assert seen[: len(want)] == want, seen
assert seen[-4:-1] == ["response.output_text.done", "response.content_part.done", "response.output_item.done"], seen
assert "response.output_text.annotation.added" in seen and final is not None and final.output_text == text and text, (seen, final)
assert final.output[0].results is None and final.output[-1].content[0].annotations, final
assert text == r.output_text, (text, r.output_text)

# with the client's own reader of streams
with client.responses.stream(model=model, input="Say hello.", max_output_tokens=300, temperature=0) as stream:
    for _ in stream:
        pass
    assert stream.get_final_response().output_text

# going on
first = client.responses.create(model=model, instructions="Be brief.", input="My dog is called Bramble.", max_output_tokens=20, temperature=0)
second = client.responses.create(model=model, input="What did I say?", previous_response_id=first.id, max_output_tokens=20, temperature=0)
assert second.previous_response_id == first.id and second.usage.input_tokens > first.usage.input_tokens, second
assert client.responses.retrieve(first.id).output_text == first.output_text
items = list(client.responses.input_items.list(second.id, order="asc", limit=1))
assert [i.role for i in items] == ["user"] + ["assistant"] + ["user"] and items[0].content[0].text == "My dog is called Bramble.", items
for who in (stranger,):
    refused(openai.NotFoundError, lambda: who.responses.retrieve(first.id))
    refused(openai.NotFoundError, lambda: who.responses.delete(first.id))
    refused(openai.NotFoundError, lambda: who.responses.create(model=model, input="x", previous_response_id=first.id))
    refused(openai.NotFoundError, lambda: who.responses.create(model=model, input="x", tools=[tool]))
    refused(openai.NotFoundError, lambda: who.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}], extra_body={"documents": {"collections": [store.id]}}))
client.responses.delete(first.id)
refused(openai.NotFoundError, lambda: client.responses.retrieve(first.id))
loose = client.responses.create(model=model, input="Hi", max_output_tokens=2, store=False)
refused(openai.NotFoundError, lambda: client.responses.retrieve(loose.id))

# functions, and what a function gave
f = {"type": "function", "name": "weather", "description": "the weather of a place", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"], "additionalProperties": False}, "strict": True}
given = [{"role": "user", "content": "How is the weather in Ghent?"}, {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"place":"Ghent"}'},
         {"type": "function_call_output", "call_id": "call_1", "output": "rain"}]
more = client.responses.create(model=model, input=given, tools=[f], tool_choice="none", max_output_tokens=20, temperature=0)
assert more.output_text, more
if model != "small":  # which has no tools in its template
    call = client.responses.create(model=model, input="How is the weather in Ghent?", tools=[f], tool_choice="required", max_output_tokens=60, temperature=0)
    asked = [o for o in call.output if o.type == "function_call"]
    assert asked and asked[0].name == "weather" and asked[0].call_id, call
    back = [{"type": "function_call_output", "call_id": asked[0].call_id, "output": "rain"}]
    more = client.responses.create(model=model, previous_response_id=call.id, tools=[f], tool_choice="none", max_output_tokens=20, temperature=0,
                                   input=back)
    assert more.output_text is not None, more

# of a form
shape = {"format": {"type": "json_schema", "name": "person", "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}, "strict": True}}
shaped = client.responses.create(model=model, input="A person named Ann.", max_output_tokens=40, temperature=0, text=shape)
assert set(json.loads(shaped.output_text)) == {"ok"}, shaped.output_text

# what is not here is left out, and said
raw = client.responses.with_raw_response.create(model=model, input="Hi", max_output_tokens=4, tools=[{"type": "web_search"}])
assert "web_search" in raw.headers["warning"] and raw.parse().output_text, raw.headers

# chats
ask = [{"role": "user", "content": "Who planted the pear trees?"}]
raw = client.chat.completions.with_raw_response.create(model=model, messages=ask, max_tokens=30, temperature=0, extra_body={"documents": {"collections": ["House"], "top_k": 2}})
said = raw.parse()
assert raw.headers["x-1bit-documents"].startswith(store.id + "; n="), raw.headers
assert "garden.html" in names_of(said.choices[0].message.annotations), said
raw = client.chat.completions.with_raw_response.create(model=model, messages=ask, max_tokens=30, temperature=0, stream=True, extra_headers={"X-1bit-Documents": store.id})
last = None
for chunk in raw.parse():
    if chunk.choices and chunk.choices[0].finish_reason:
        last = chunk.choices[0].delta
assert last is not None and "garden.html" in names_of(last.annotations), last
raw = client.chat.completions.with_raw_response.create(model=model, messages=ask, max_tokens=4)
assert "x-1bit-documents" not in raw.headers
refused(openai.BadRequestError, lambda: client.responses.create(model=model, input=[{"role": "user", "content": [{"type": "input_file", "file_id": "file-x"}]}]))
refused(openai.NotFoundError, lambda: client.responses.create(model="none", input="x"))
client.vector_stores.delete(store.id)
print("PASS")
