create table conversations(
	n          integer primary key,
	id         blob not null unique check(length(id) = 16),
	scope      blob not null check(length(scope) = 16),
	place      text not null,
	class      text not null,
	confidence real not null,
	module     text not null,
	tokens     integer not null,
	turns      integer not null,
	until      integer not null,
	first      integer not null,
	used       integer not null,
	detail     text not null
) strict;
create index conversations_scope on conversations(scope);
create index conversations_used on conversations(used);

create table conversation_names(
	name         blob primary key check(length(name) = 16),
	conversation integer not null references conversations(n) on delete cascade,
	at           integer not null
) strict, without rowid;
create index conversation_names_at on conversation_names(conversation, at);

pragma user_version = 1004;
