create table prefixes(
	file     text primary key check(length(file) between 1 and 128),
	model    text not null check(length(model) between 1 and 128),
	identity blob not null check(length(identity) = 32),
	scope    blob not null check(length(scope) = 32),
	last     blob not null check(length(last) = 16),
	blocks   blob not null check(length(blocks) <= 262144),
	tokens   integer not null check(tokens >= 0),
	bytes    integer not null check(bytes >= 0),
	marked   integer not null,
	used     integer not null
) strict, without rowid;
create index prefixes_used on prefixes(used);

pragma user_version = 1003;
