CREATE TABLE blocks (
	blocker TEXT NOT NULL, 
	blocked TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	blocker_seen BIGINT, 
	blocked_seen BIGINT, 
	lifted_at BIGINT, 
	PRIMARY KEY (blocker, blocked)
)
 WITHOUT ROWID
CREATE INDEX blocks_of_blocked ON blocks (blocked)
CREATE TABLE changes (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	kind TEXT NOT NULL, 
	a TEXT NOT NULL, 
	b TEXT NOT NULL
)
CREATE TABLE choices (
	user TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	mode SMALLINT NOT NULL, 
	mode_until BIGINT, 
	custom_text TEXT, 
	custom_emoji TEXT, 
	custom_until BIGINT, sources TEXT, 
	PRIMARY KEY (user)
)
 WITHOUT ROWID
CREATE TABLE contacts (
	a TEXT NOT NULL, 
	b TEXT NOT NULL, 
	until BIGINT, 
	PRIMARY KEY (a, b)
)
 WITHOUT ROWID
CREATE INDEX contacts_of_b ON contacts (b)
CREATE TABLE follows (
	a TEXT NOT NULL, 
	b TEXT NOT NULL, 
	PRIMARY KEY (a, b)
)
 WITHOUT ROWID
CREATE INDEX follows_of_b ON follows (b)
CREATE TABLE herenow_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT herenow_schema_pkc PRIMARY KEY (version_num)
)
CREATE TABLE last_seen (
	user TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	PRIMARY KEY (user)
)
 WITHOUT ROWID
CREATE TABLE late_choices (
	user TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	PRIMARY KEY (user)
)
 WITHOUT ROWID
CREATE TABLE members (
	room TEXT NOT NULL, 
	user TEXT NOT NULL, 
	PRIMARY KEY (room, user)
)
 WITHOUT ROWID
CREATE INDEX members_by_user ON members (user)
CREATE TABLE meta (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY ("key")
)
 WITHOUT ROWID
CREATE TABLE open_marks (
	user TEXT NOT NULL, 
	run TEXT NOT NULL, 
	at BIGINT DEFAULT 0 NOT NULL, 
	PRIMARY KEY (user, run)
)
 WITHOUT ROWID
CREATE TABLE preferences (
	user TEXT NOT NULL, 
	idle_after BIGINT, visibility SMALLINT, hidden_at BIGINT, hidden_last_seen BIGINT, share_last_seen BOOLEAN, public BOOLEAN, shown_at BIGINT, shown_last_seen BIGINT, shared_at BIGINT, 
	PRIMARY KEY (user)
)
 WITHOUT ROWID
CREATE TABLE runs (
	run TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	PRIMARY KEY (run)
)
 WITHOUT ROWID
CREATE TABLE sqlite_sequence(name,seq)
CREATE TABLE voids (
	user TEXT NOT NULL, 
	"before" BIGINT NOT NULL, 
	until BIGINT NOT NULL, 
	erased BIGINT, 
	PRIMARY KEY (user)
)
 WITHOUT ROWID
CREATE TABLE blocks (
	blocker TEXT NOT NULL, 
	blocked TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	blocker_seen BIGINT, 
	blocked_seen BIGINT, 
	lifted_at BIGINT, 
	PRIMARY KEY (blocker, blocked)
)
CREATE INDEX blocks_of_blocked ON blocks (blocked)
CREATE TABLE changes (
	id BIGSERIAL NOT NULL, 
	kind TEXT NOT NULL, 
	a TEXT NOT NULL, 
	b TEXT NOT NULL, 
	PRIMARY KEY (id)
)
CREATE TABLE choices (
	"user" TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	mode SMALLINT NOT NULL, 
	mode_until BIGINT, 
	custom_text TEXT, 
	custom_emoji TEXT, 
	custom_until BIGINT, 
	sources TEXT, 
	PRIMARY KEY ("user")
)
CREATE TABLE contacts (
	a TEXT NOT NULL, 
	b TEXT NOT NULL, 
	until BIGINT, 
	PRIMARY KEY (a, b)
)
CREATE INDEX contacts_of_b ON contacts (b)
CREATE TABLE follows (
	a TEXT NOT NULL, 
	b TEXT NOT NULL, 
	PRIMARY KEY (a, b)
)
CREATE INDEX follows_of_b ON follows (b)
CREATE TABLE last_seen (
	"user" TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	PRIMARY KEY ("user")
)
CREATE TABLE late_choices (
	"user" TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	PRIMARY KEY ("user")
)
CREATE TABLE members (
	room TEXT NOT NULL, 
	"user" TEXT NOT NULL, 
	PRIMARY KEY (room, "user")
)
CREATE INDEX members_by_user ON members ("user")
CREATE TABLE meta (
	key TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (key)
)
CREATE TABLE open_marks (
	"user" TEXT NOT NULL, 
	run TEXT NOT NULL, 
	at BIGINT DEFAULT 0 NOT NULL, 
	PRIMARY KEY ("user", run)
)
CREATE TABLE preferences (
	"user" TEXT NOT NULL, 
	idle_after BIGINT, 
	visibility SMALLINT, 
	hidden_at BIGINT, 
	hidden_last_seen BIGINT, 
	share_last_seen BOOLEAN, 
	public BOOLEAN, 
	shown_at BIGINT, 
	shown_last_seen BIGINT, 
	shared_at BIGINT, 
	PRIMARY KEY ("user")
)
CREATE TABLE runs (
	run TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	PRIMARY KEY (run)
)
CREATE TABLE voids (
	"user" TEXT NOT NULL, 
	before BIGINT NOT NULL, 
	until BIGINT NOT NULL, 
	erased BIGINT, 
	PRIMARY KEY ("user")
)
