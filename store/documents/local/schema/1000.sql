create table collections (
	n integer primary key autoincrement, -- names the tables of words
	id text not null unique,
	owner text not null,
	name text not null,
	everyone integer not null default 0,
	metadata text not null default '{}',
	created integer not null,
	active integer not null,
	expires_after integer not null default 0, -- ms
	chunk_max integer not null default 0,
	chunk_overlap integer not null default 0,
	model text not null default '',
	dims integer not null default 0,
	next text not null default '',
	slot integer not null default 0, -- 0 or 1: which vectors are shown
	generation integer not null default 0
) strict;
create index collections_owner on collections (owner, id);

create table shares (
	collection text not null references collections (id) on delete cascade,
	person text not null,
	primary key (collection, person)
) strict, without rowid;
create index shares_person on shares (person);

create table files (
	id text primary key,
	owner text not null,
	name text not null,
	bytes integer not null,
	sha256 text not null,
	purpose text not null,
	created integer not null,
	expires integer not null default 0
) strict, without rowid;
create index files_owner on files (owner, id);

create table parts (
	file text not null references files (id) on delete cascade,
	n integer not null,
	content blob not null,
	primary key (file, n)
) strict;

create table attachments (
	n integer primary key autoincrement,
	collection text not null references collections (id) on delete cascade,
	file text not null references files (id) on delete cascade,
	batch text not null default '',
	status text not null check (status in ('in_progress', 'completed', 'failed', 'cancelled')),
	problem text not null default '',
	created integer not null,
	attributes text not null default '{}',
	chunk_max integer not null default 0,
	chunk_overlap integer not null default 0,
	chunks integer not null default 0,
	embedded integer not null default 0,
	bytes integer not null default 0,
	pages integer not null default 0,
	first integer not null default 0, -- its passages' ids are these, without a gap
	last integer not null default -1,
	unique (collection, file)
) strict;
create index attachments_file on attachments (file);
create index attachments_status on attachments (status, n);

create table passages (
	id integer primary key autoincrement, -- never used twice: slabs rely on it
	attachment integer not null references attachments (n) on delete cascade,
	ordinal integer not null,
	path text not null, -- JSON list
	text text not null,
	page integer not null,
	start integer not null,
	stop integer not null,
	tokens integer not null,
	unique (attachment, ordinal)
) strict;

-- id is twice the passage's, and one more for the other slot: a change of the
-- model fills the slot that the collection does not show.
create table vectors (
	id integer primary key,
	vector blob not null -- float32, little-endian
) strict;

create trigger passages_gone after delete on passages begin
	delete from vectors where id in (2 * old.id, 2 * old.id + 1);
end;

pragma user_version = 1000;
