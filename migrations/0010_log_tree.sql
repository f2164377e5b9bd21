-- The Merkle tree over the event log in tiles of 256 hashes (src/event-log/tree). Derived from the log and disposable: emptied, the next
-- checkpoint fills it again. Nothing believes it without comparing the root it gives with a signed checkpoint.

-- How far the tiles go.
create table log_tree (
  one boolean primary key default true check (one),
  origin text not null,
  size bigint not null,
  -- Of the event of the last leaf, and what the log holds there; 0 and null before the first event.
  position bigint not null,
  event_id uuid,
  digest text
);

create table log_tree_tiles (
  level smallint not null,
  index bigint not null,
  -- 32 bytes each: of leaves on level 0, of tiles of the level below on the others. The last tile of a level has fewer than 256.
  hashes bytea not null,
  -- Level 0 only: the positions of the events of its leaves, 8 bytes each, and the first of them.
  first_position bigint,
  positions bytea,
  primary key (level, index)
);
-- Hashes cannot be compressed.
alter table log_tree_tiles alter column hashes set storage external;

-- An event's leaf is found by its position.
create index log_tree_tiles_position on log_tree_tiles (first_position) where level = 0;
