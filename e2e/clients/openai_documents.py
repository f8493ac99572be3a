"""Uploads documents, waits for them, searches and deletes, with the official openai client:
python openai_documents.py BASE_URL ROOT_PEM KEY FOLDER"""

import os
import ssl
import sys

import openai

base, root, key, folder = sys.argv[1:5]
client = openai.OpenAI(base_url=base, api_key=key, max_retries=0, http_client=openai.DefaultHttpxClient(verify=ssl.create_default_context(cafile=root), timeout=120))

NAMES = ["heating.md", "garden.html", "guests.docx", "costs.xlsx", "stories.epub", "alarm.eml", "boat.pdf"]
QUESTIONS = {
    "heating.md": ["What pressure should the boiler have?", "How warm is the flow at night?"],
    "garden.html": ["Who planted the pear trees?", "With what are the plants in the greenhouse watered?"],
    "guests.docx": ["In which room do guests sleep?", "When is breakfast?"],
    "costs.xlsx": ["How much is the firewood?"],
    "stories.epub": ["What was the name of the fox?"],
    "alarm.eml": ["Where do we meet when the alarm rings?"],
    "boat.pdf": ["How are cracks in the boat repaired?", "What is the name of the rowing boat?"],
}

store = client.vector_stores.create(name="Larkspur House", metadata={"kind": "test"}, expires_after={"anchor": "last_active_at", "days": 7})
assert store.file_counts.total == 0 and store.status == "completed", store
first = client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=open(os.path.join(folder, NAMES[0]), "rb"))
assert first.status == "completed", first
batch = client.vector_stores.file_batches.upload_and_poll(vector_store_id=store.id, files=[open(os.path.join(folder, n), "rb") for n in NAMES[1:]])
assert batch.status == "completed" and batch.file_counts.completed == len(NAMES) - 1, batch
store = client.vector_stores.retrieve(store.id)
assert store.file_counts.completed == len(NAMES) and store.usage_bytes > 0 and store.expires_at > store.created_at, store

ids = {}
for f in client.vector_stores.files.list(store.id, limit=3):  # pages follow by themselves
    ids[client.files.retrieve(f.id).filename] = f.id
assert sorted(ids) == sorted(NAMES), ids

wrong = 0
for name, questions in QUESTIONS.items():
    for q in questions:
        page = client.vector_stores.search(store.id, query=q, max_num_results=3)
        found = [r.filename for r in page.data]
        if found[:1] != [name]:
            wrong += 1
            print("not first:", q, found)
        assert name in found, (q, found)
        assert 0 < page.data[0].score <= 1 and page.data[0].content[0].type == "text"
assert wrong <= 1, wrong

bad = client.files.create(file=("broken.pdf", b"%PDF-1.7\nnothing"), purpose="assistants")
failed = client.vector_stores.files.create_and_poll(bad.id, vector_store_id=store.id)
assert failed.status == "failed" and failed.last_error.message, failed

tagged = client.vector_stores.files.update(ids["boat.pdf"], vector_store_id=store.id, attributes={"place": "pond"})
assert tagged.attributes == {"place": "pond"}, tagged
page = client.vector_stores.search(store.id, query="What pressure should the boiler have?", filters={"type": "eq", "key": "place", "value": "pond"})
assert {r.filename for r in page.data} == {"boat.pdf"}, page

assert b"Brunnen" in client.files.content(ids["heating.md"]).read()
client.files.delete(ids["heating.md"])
page = client.vector_stores.search(store.id, query="What pressure should the boiler have?")
assert all(r.filename != "heating.md" for r in page.data), page
for call in (lambda: client.files.retrieve(ids["heating.md"]), lambda: client.vector_stores.retrieve("vs_none")):
    try:
        call()
        raise SystemExit("what is gone is found")
    except openai.NotFoundError:
        pass
assert client.vector_stores.delete(store.id).deleted
print("PASS")
