alter table keys add column bind integer not null default 0;

create table responses(
	id      text primary key check(length(id) between 1 and 64),
	person  text references people(id) on delete cascade,
	key     text not null,
	body    blob not null,
	created integer not null,
	expires integer not null
) strict, without rowid;
create index responses_person on responses(person);
create index responses_expires on responses(expires);

pragma user_version = 1002;
