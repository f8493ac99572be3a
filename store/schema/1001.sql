create table extensions(
	sha256  text primary key check(length(sha256) = 64),
	name    text not null,
	version text not null,
	kind    text not null,
	size    integer not null,
	detail  text not null,
	by      text not null,
	added   integer not null
) strict;

create table extension_bindings(
	name    text primary key check(length(name) between 1 and 64),
	value   text not null,
	changed integer not null
) strict, without rowid;

create table extension_log(
	id      integer primary key,
	time    integer not null,
	person  text not null,
	key     text not null,
	action  text not null,
	module  text not null,
	binding text not null,
	detail  text not null
) strict;
create trigger extension_log_no_update before update on extension_log begin select raise(abort, 'the log of extensions is append-only'); end;
create trigger extension_log_no_delete before delete on extension_log begin select raise(abort, 'the log of extensions is append-only'); end;

create table extension_values(
	module  text not null,
	tenant  text not null,
	name    text not null,
	value   blob not null,
	expires integer not null,
	primary key(module, tenant, name)
) strict, without rowid;
create index extension_values_tenant on extension_values(tenant);
create index extension_values_expires on extension_values(expires) where expires > 0;

pragma user_version = 1001;
