-- English stems, as the other keeper has them, and no stop words: "not" and
-- "and" can be what is looked for.
create text search dictionary stems (template = snowball, language = english);
create text search configuration words (copy = english);
alter text search configuration words alter mapping for asciiword, asciihword, hword_asciipart, word, hword, hword_part with stems;

create table collections (
	id text collate "C" primary key,
	owner text not null,
	name text not null,
	everyone boolean not null default false,
	metadata jsonb not null default '{}',
	created bigint not null, -- ms
	active bigint not null,
	expires_after bigint not null default 0,
	chunk_max integer not null default 0,
	chunk_overlap integer not null default 0,
	model text not null default '',
	dims integer not null default 0,
	next text not null default '',
	slot smallint not null default 0, -- which vectors are shown
	generation bigint not null default 0
);
create index on collections (owner, id);

create table shares (
	collection text collate "C" not null references collections (id) on delete cascade,
	person text not null,
	primary key (collection, person)
);
create index on shares (person);

create table files (
	id text collate "C" primary key,
	owner text not null,
	name text not null,
	bytes bigint not null,
	sha256 text not null,
	purpose text not null,
	created bigint not null,
	expires bigint not null default 0
);
create index on files (owner, id);

create table parts (
	file text collate "C" not null references files (id) on delete cascade,
	n integer not null,
	content bytea not null,
	primary key (file, n)
);

create table attachments (
	n bigint generated always as identity primary key,
	collection text collate "C" not null references collections (id) on delete cascade,
	file text collate "C" not null references files (id) on delete cascade,
	batch text not null default '',
	status text not null check (status in ('in_progress', 'completed', 'failed', 'cancelled')),
	problem text not null default '',
	created bigint not null,
	attributes jsonb not null default '{}',
	chunk_max integer not null default 0,
	chunk_overlap integer not null default 0,
	chunks integer not null default 0,
	embedded integer not null default 0,
	bytes bigint not null default 0,
	pages integer not null default 0,
	unique (collection, file)
);
create index on attachments (file);
create index on attachments (n) where status = 'in_progress';

create table passages (
	id bigint generated always as identity primary key,
	attachment bigint not null references attachments (n) on delete cascade,
	ordinal integer not null,
	path jsonb not null,
	text text not null,
	page integer not null,
	start integer not null,
	stop integer not null,
	tokens integer not null,
	words tsvector not null,
	unique (attachment, ordinal)
);
create index on passages using gin (words);

create table vectors (
	passage bigint not null references passages (id) on delete cascade,
	slot smallint not null,
	vector vector not null,
	primary key (passage, slot)
);
