create table people(
	id       text primary key,
	name     text not null check(length(name) between 1 and 64),
	fold     text not null unique,
	role     text not null check(role in ('admin', 'member', 'guest')),
	created  integer not null,
	expires  integer not null,
	disabled integer not null,
	password text not null default '',
	recovery blob unique
) strict;

create table passkeys(
	id         text primary key,
	person     text not null references people(id) on delete cascade,
	name       text not null,
	credential text not null,
	created    integer not null,
	used       integer not null
) strict;
create index passkeys_person on passkeys(person);

create table logins(
	id      text primary key,
	hash    blob not null unique check(length(hash) = 32),
	person  text not null references people(id) on delete cascade,
	created integer not null,
	expires integer not null,
	agent   text not null,
	address text not null
) strict;
create index logins_person on logins(person);

create table invites(
	id      text primary key,
	hash    blob not null unique check(length(hash) = 32),
	role    text not null check(role in ('admin', 'member', 'guest')),
	name    text not null,
	by      text not null,
	created integer not null,
	expires integer not null,
	until   integer not null
) strict;

create table claim(
	one    integer primary key check(one = 1),
	time   integer not null,
	person text not null
) strict;

create table keys(
	id          text primary key,
	hash        blob not null unique check(length(hash) = 32),
	owner       text not null references people(id) on delete cascade,
	name        text not null,
	prefix      text not null,
	models      text not null,
	endpoints   text not null,
	collections text not null,
	admin       integer not null,
	rpm         integer not null,
	tpd         integer not null,
	concurrency integer not null,
	privacy     text not null check(privacy in ('none', 'metadata', 'full')),
	created     integer not null,
	expires     integer not null,
	revoked     integer not null,
	used        integer not null
) strict;
create index keys_owner on keys(owner);

create table usage(
	key        text not null,
	day        text not null,
	model      text not null,
	endpoint   text not null,
	person     text not null,
	requests   integer not null,
	errors     integer not null,
	prompt     integer not null,
	cached     integer not null,
	completion integer not null,
	primary key(key, day, model, endpoint, person)
) strict, without rowid;
create index usage_day on usage(day, person);

create table requests(
	seq          integer primary key,
	id           text not null unique,
	time         integer not null,
	key          text not null,
	person       text not null,
	endpoint     text not null,
	model        text not null,
	backend      text not null,
	route        text not null,
	status       integer not null,
	milliseconds integer not null,
	ttft         integer not null,
	prompt       integer not null,
	cached       integer not null,
	completion   integer not null,
	error        text not null,
	privacy      text not null,
	expires      integer not null,
	prompt_text  blob,
	answer_text  blob
) strict;
create index requests_person on requests(person);
create index requests_expires on requests(expires);

create table audit(
	id     integer primary key,
	time   integer not null,
	person text not null,
	key    text not null,
	action text not null,
	target text not null,
	detail text not null,
	hash   blob not null check(length(hash) = 32)
) strict;
create trigger audit_no_update before update on audit begin select raise(abort, 'the audit log is append-only'); end;
create trigger audit_no_delete before delete on audit begin select raise(abort, 'the audit log is append-only'); end;

create table settings(
	name    text primary key,
	value   text not null,
	changed integer not null
) strict, without rowid;

create table models(
	id       text primary key,
	path     text not null,
	digest   text not null,
	size     integer not null,
	source   text not null,
	role     text not null,
	pinned   integer not null,
	preload  integer not null,
	ttl      integer not null,
	context  integer not null,
	options  text not null,
	added    integer not null
) strict;

create table blobs(
	owner   text not null,
	hash    text not null check(length(hash) = 64),
	size    integer not null,
	created integer not null,
	primary key(owner, hash)
) strict, without rowid;

create table blob_parts(
	owner text not null,
	hash  text not null,
	part  integer not null,
	sum   blob not null check(length(sum) = 32),
	data  blob not null,
	primary key(owner, hash, part),
	foreign key(owner, hash) references blobs(owner, hash) on delete cascade
) strict;

create table tls_values(
	name  text primary key,
	value blob not null,
	time  integer not null
) strict, without rowid;

create table tls_locks(
	name  text primary key,
	owner text not null,
	until integer not null
) strict, without rowid;

pragma user_version = 1000;
