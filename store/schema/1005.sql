alter table keys add column priority text not null default 'interactive' check(priority in ('interactive', 'normal', 'background'));
alter table keys add column weight integer not null default 1 check(weight between 1 and 100);

-- what goes first is the oldest of whoever holds most
create index conversations_holder on conversations(scope, used);
drop index conversations_scope;
drop index conversations_used;

pragma user_version = 1005;
