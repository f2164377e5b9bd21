/* The protocol of writing a ledger: src/ledger/{writer,writer-states,callers,append-batch,reversals}.ts,
 * src/event-log/append-until-known.ts, src/call/{identify,key-lookup,claims,recording}.ts.
 *
 * Two processes with one writer each, and one stream with exact expected revisions. Operation K has an Idempotency-Key: it is request 0, and
 * its repetitions are requests 1 and 3. Operation U has none: it is request 2. Each costs 1 credit.
 *
 * An entry in the stream is (id, who). Ids: 0 the call K and its charge, 1 the call U and its charge, 2 the reversal of U, 15 a fence.
 * KeyUsed and CreditCharged are one entry, because they are one append. who is the request whose bytes the entry has, or 8.
 *
 * Every fault has a budget, which need not be used up, so every run ends, and "eventually" means "at the end". The monitor runs
 * when nothing else can (timeout).
 */
#ifndef BAL
#define BAL 1        /* credits at the start */
#endif
#ifndef DELAYS
#define DELAYS 1     /* appends that the network delays: they can arrive at any later moment, or never */
#endif
#ifndef LOST
#define LOST 1       /* appends that are written but whose reply is lost */
#endif
#ifndef LATES
#define LATES 1      /* callers whose wait ends while their append is in progress: 504 */
#endif
#ifndef QLATES
#define QLATES 1     /* callers whose wait ends while their command waits to be decided: 503 */
#endif
#ifndef RFAIL
#define RFAIL 1      /* attempts to decide a place that fail */
#endif
#ifndef LOSTOK_N
#define LOSTOK_N 1   /* 200s that do not reach the client */
#endif
#ifndef CRASH
#define CRASH 0      /* processes killed with kill -9 */
#endif
#ifndef TERM
#define TERM 0       /* processes stopped with SIGTERM */
#endif
#ifndef TRIES
#define TRIES 2      /* requests with the key K */
#endif
#ifndef MUT
#define MUT 0        /* mutants: 1 a caller of an append in progress gets 503; 2 a place counts as decided without a fence in it;
                        3 the log takes an append at any revision; 4 a repetition has a new id */
#endif

#define LMAX 12
#define NQ 4
#define BMAX 2
#define NONE 255
#define NOREV 255
#define idK 0
#define idU 1
#define idR 2
#define idK2 3       /* mutant 4 */
#define fenceId 15

/* requests */
#define NEW 0
#define WAIT 1       /* queued */
#define INB 2        /* in the batch in progress */
#define REID 3       /* another request under its key was found in the log: identifyAgain */
#define OK 4         /* 200 */
#define LOSTOK 5     /* 200, but the client did not get it */
#define R503 6
#define R402 7
#define R504 8       /* outcome unknown */
#define NOREPLY 9    /* the process ended */
#define NEVER 10
/* writers */
#define IDLE 0       /* unloaded, idle, looking, catching up */
#define WRITING 1
#define UNKNOWN 2    /* sent at least once, and the place not decided: resending, then deciding */
/* the claim row of K */
#define CNONE 0
#define HELD 1
#define STALE 2      /* released, or 60 s old */
#define ANSWERED 3

typedef Bat { byte n; byte base; byte id[BMAX]; byte who[BMAX] }
typedef Proc { bit up; bit term; byte st; byte rev; Bat b; bit due }

byte llen; byte lid[LMAX]; byte lwho[LMAX];
Proc P[2];
Bat late[2];         /* appends that the network delays */
byte rst[NQ], rp[NQ];
byte claim;
byte delays = DELAYS, losts = LOST, lates = LATES, qlates = QLATES, rfail = RFAIL, lostok = LOSTOK_N, crash = CRASH, term = TERM;
bit told;            /* a process that stopped normally logged the request id of U */
bit killed;          /* a process that owed U a reversal was killed */

hidden byte i, j, k, q, n, fx, sl; hidden byte res; hidden short bal, nk, nu, nr;

#define isK(x) ((x) != 2)
#if MUT == 4
#define idOf(x) (((x) == 2) + 3 * ((x) == 1 || (x) == 3))
#else
#define idOf(x) ((x) == 2)
#endif

inline clear(B) { B.n = 0; B.base = 0; B.id[0] = 0; B.id[1] = 0; B.who[0] = 0; B.who[1] = 0 }
inline copy(T, F) { T.n = F.n; T.base = F.base; T.id[0] = F.id[0]; T.id[1] = F.id[1]; T.who[0] = F.who[0]; T.who[1] = F.who[1] }
inline findId(x, upto) { fx = NONE; j = 0; do :: j < upto -> if :: lid[j] == (x) -> fx = j; break :: else -> j++ fi :: else -> break od }
inline sums(upto) { bal = BAL; nk = 0; nu = 0; nr = 0; j = 0;
  do :: j < upto ->
      if :: lid[j] == idK || lid[j] == idK2 -> bal--; nk++
         :: lid[j] == idU -> bal--; nu++
         :: lid[j] == idR -> bal++; nr++
         :: else fi;
      j++
     :: else -> break od }
/* The same bytes are at its place. One comparison is enough, because the last event's digest covers all earlier events. */
inline isThere(B) { res = 1; i = 0;
  do :: i < B.n -> if :: B.base + i >= llen -> res = 0 :: else -> if :: lid[B.base+i] != B.id[i] || lwho[B.base+i] != B.who[i] -> res = 0 :: else fi fi; i++
     :: else -> break od }
/* The log's answer to an append. res 1: written; 0: conflict (also if the ids are there with other bytes). */
inline append(B) {
  if :: llen == B.base || MUT == 3 -> i = 0;
        do :: i < B.n -> assert(llen < LMAX); lid[llen] = B.id[i]; lwho[llen] = B.who[i]; llen++; i++ :: else -> break od;
        res = 1; sums(llen);
        assert(bal >= 0);                       /* P1 */
        assert(nk <= 1 && nu <= 1 && nr <= nu)  /* P2 */
     :: else -> isThere(B) fi }

inline ok(x) { rst[x] = OK; if :: isK(x) -> claim = ANSWERED :: else fi }
inline refuse(x) { rst[x] = R503; if :: isK(x) -> claim = STALE :: else fi }
inline unknown(x) { rst[x] = R504; if :: isK(x) -> claim = STALE :: else fi }
inline noreply(x) { rst[x] = NOREPLY; if :: isK(x) -> claim = STALE :: else fi }

/* key-lookup.ts: looks for the key in the ledger. A charged call is answered free; otherwise the call is made. */
inline lookup(x) { findId(idOf(x), llen); if :: fx == NONE -> rst[x] = WAIT :: else -> ok(x) fi }

/* The batch is durable: callers who still wait are answered. The charge for U is reversed if its caller got 504. */
inline written(p) { k = 0;
  do :: k < P[p].b.n -> n = P[p].b.who[k];
      if :: n < 8 -> if :: rst[n] == INB -> ok(n)
                        :: rst[n] == R504 && n == 2 -> P[p].due = 1
                        :: else fi
         :: else -> P[p].due = 0 fi; k++
     :: else -> break od }
/* The batch can never be written: calls that still wait are decided again. */
inline requeue(p) { k = 0; do :: k < P[p].b.n -> n = P[p].b.who[k]; if :: n < 8 && rst[n] == INB -> rst[n] = WAIT :: else fi; k++ :: else -> break od }
inline rest(p, r) { clear(P[p].b); P[p].st = IDLE; P[p].rev = r }
inline outcome(p) { append(P[p].b);
  if :: res -> written(p); n = P[p].b.base + P[p].b.n; rest(p, n) :: else -> requeue(p); rest(p, llen) fi }

/* The process owes U an outcome: U is in the batch whose place is not decided, or its reversal is not written yet. */
#define inBatch(p, x) (P[p].b.n > 0 && P[p].b.who[0] == x || P[p].b.n > 1 && P[p].b.who[1] == x)
#define owesU(p) (P[p].due || P[p].st == UNKNOWN && inBatch(p, 2))

inline forget(p) { k = 0;
  do :: k < NQ -> if :: rp[k] == p && (rst[k] == WAIT || rst[k] == INB || rst[k] == REID) -> noreply(k) :: else fi; k++ :: else -> break od;
  clear(P[p].b); P[p].due = 0; P[p].st = IDLE; P[p].rev = NOREV; P[p].term = 0; P[p].up = 0 }

#define queued(p, x) (rst[x] == WAIT && rp[x] == p)
#define anyQueued(p) (queued(p,0) || queued(p,1) || queued(p,2) || queued(p,3))
#define busy(p, x) ((rst[x] == WAIT || rst[x] == INB || rst[x] == REID) && rp[x] == p)
#define anyBusy(p) (busy(p,0) || busy(p,1) || busy(p,2) || busy(p,3))
#define waits(p, e) (P[p].b.n > e && P[p].b.who[e] < 8 && rst[P[p].b.who[e]] == INB)
#define undecided(p) (P[p].up && P[p].st == UNKNOWN)
#define nothingThere(p) (llen <= P[p].b.base)
#define fence assert(llen < LMAX); lid[llen] = fenceId; lwho[llen] = 8; llen++

proctype Writer(byte p) {
  do
  /* load: the snapshot and the stream after it */
  :: d_step { P[p].up && P[p].st == IDLE && P[p].rev == NOREV && (anyQueued(p) || P[p].due) -> P[p].rev = llen }
  /* decide a batch against the account as it was read up to rev */
  :: d_step { P[p].up && P[p].st == IDLE && P[p].rev != NOREV && (anyQueued(p) || P[p].due) ->
      clear(P[p].b); sums(P[p].rev); sl = 0; q = 0;
      do :: q < NQ ->
          if :: queued(p, q) && sl < BMAX ->
                findId(idOf(q), P[p].rev);
                if :: fx != NONE -> if :: lwho[fx] == q -> ok(q) :: else -> rst[q] = REID fi
                   :: fx == NONE && bal > 0 -> bal--; P[p].b.id[sl] = idOf(q); P[p].b.who[sl] = q; sl++; rst[q] = INB
                   :: else -> rst[q] = R402; if :: isK(q) -> claim = CNONE :: else fi
                fi
             :: else fi; q++
         :: else -> break od;
      if :: P[p].due && sl < BMAX ->
            findId(idR, P[p].rev);
            if :: fx != NONE -> P[p].due = 0 :: else -> P[p].b.id[sl] = idR; P[p].b.who[sl] = 8; sl++ fi
         :: else fi;
      if :: sl > 0 -> P[p].b.n = sl; P[p].b.base = P[p].rev; P[p].st = WRITING :: else -> clear(P[p].b) fi }
  /* the append: written and answered; written, but the reply is lost; delayed by the network */
  :: d_step { P[p].up && P[p].st == WRITING -> outcome(p) }
  :: d_step { P[p].up && P[p].st == WRITING && losts > 0 -> losts--; append(P[p].b); P[p].st = UNKNOWN }
  :: d_step { P[p].up && P[p].st == WRITING && delays > 0 -> delays--;
      if :: late[0].n == 0 -> copy(late[0], P[p].b) :: else -> assert(late[1].n == 0); copy(late[1], P[p].b) fi; P[p].st = UNKNOWN }
  /* resend the identical append */
  :: d_step { undecided(p) -> outcome(p) }
  /* a caller whose wait ends */
#if MUT == 1
#define giveUp(e) n = P[p].b.who[e]; refuse(n)
#else
#define giveUp(e) n = P[p].b.who[e]; unknown(n)
#endif
  :: d_step { undecided(p) && lates > 0 && waits(p,0) -> lates--; giveUp(0) }
  :: d_step { undecided(p) && lates > 0 && waits(p,1) -> lates--; giveUp(1) }
  :: d_step { P[p].up && qlates > 0 && queued(p,0) -> qlates--; refuse(0) }
  :: d_step { P[p].up && qlates > 0 && queued(p,1) -> qlates--; refuse(1) }
  :: d_step { P[p].up && qlates > 0 && queued(p,2) -> qlates--; refuse(2) }
  /* the place is read; if it is empty, a fence takes it, and its reply may be lost */
  :: d_step { undecided(p) && !nothingThere(p) -> isThere(P[p].b); if :: res -> written(p) :: else -> requeue(p) fi; rest(p, NOREV) }
#if MUT == 2
  :: d_step { undecided(p) && nothingThere(p) -> k = 0;
      do :: k < P[p].b.n -> if :: waits(p, k) -> n = P[p].b.who[k]; refuse(n) :: else fi; k++ :: else -> break od; rest(p, NOREV) }
#else
  :: d_step { undecided(p) && nothingThere(p) -> fence; requeue(p); rest(p, NOREV) }
  :: d_step { undecided(p) && nothingThere(p) && losts > 0 -> losts--; fence }
  /* the fence was on its way when another append took the place, or the place cannot be read: it is read again */
  :: d_step { undecided(p) && rfail > 0 -> rfail-- }
#endif
  /* identifyAgain */
#define reid(x) P[p].up && rst[x] == REID && rp[x] == p
  :: d_step { reid(0) -> lookup(0) }
  :: d_step { reid(1) -> lookup(1) }
  :: d_step { reid(3) -> lookup(3) }
  /* SIGTERM: callers are answered first. Calls that are not decided or not reversed by then are logged. */
  :: d_step { P[p].up && P[p].term && P[p].st == IDLE && !anyBusy(p) && !P[p].due -> forget(p) }
  :: d_step { P[p].up && P[p].term && !anyBusy(p) && owesU(p) -> told = 1; forget(p) }
  :: d_step { P[p].up && P[p].term && !anyBusy(p) && P[p].st == UNKNOWN && !owesU(p) -> forget(p) }
  od
}

#define open(p) (P[p].up && !P[p].term)
#define sent(x, p, when) d_step { (when) && rst[x] == NEW && open(p) && claim != HELD -> rp[x] = p; if :: claim == ANSWERED -> rst[x] = OK :: else -> claim = HELD; lookup(x) fi }
#define toRetry(x) (rst[x] == R503 || rst[x] == R504 || rst[x] == NOREPLY || rst[x] == LOSTOK)

proctype Env() {
  do
  /* clients */
  :: sent(0, 0, true)
  :: d_step { rst[2] == NEW && open(0) -> rp[2] = 0; rst[2] = WAIT }
  :: d_step { rst[2] == NEW && open(1) -> rp[2] = 1; rst[2] = WAIT }
  :: sent(1, 1, toRetry(0))
  :: sent(1, 0, toRetry(0))
  :: d_step { rst[1] == NEW && toRetry(0) -> rst[1] = NEVER }
#if TRIES == 3
  :: sent(3, 0, toRetry(1))
  :: sent(3, 1, toRetry(1))
  :: d_step { rst[3] == NEW && toRetry(1) -> rst[3] = NEVER }
#endif
  :: d_step { rst[0] == OK && lostok > 0 -> lostok--; rst[0] = LOSTOK }
  /* the network */
  :: d_step { late[0].n > 0 -> append(late[0]); clear(late[0]) }
  :: d_step { late[1].n > 0 -> append(late[1]); clear(late[1]) }
  :: d_step { late[0].n > 0 -> clear(late[0]) }
  :: d_step { late[1].n > 0 -> clear(late[1]) }
  /* processes */
  :: d_step { crash > 0 && P[0].up -> crash--; if :: owesU(0) -> killed = 1 :: else fi; forget(0) }
  :: d_step { crash > 0 && P[1].up -> crash--; if :: owesU(1) -> killed = 1 :: else fi; forget(1) }
  :: d_step { term > 0 && open(0) -> term--; P[0].term = 1 }
  :: d_step { term > 0 && open(1) -> term--; P[1].term = 1 }
  :: d_step { !P[0].up -> P[0].up = 1 }
  :: d_step { !P[1].up -> P[1].up = 1 }
  /* unused faults need not happen */
  :: d_step { lostok + crash + term > 0 -> lostok = 0; crash = 0; term = 0 }
  od
}

#define ended(x) (rst[x] != WAIT && rst[x] != INB && rst[x] != REID)
#define good(x) (rst[x] == OK || rst[x] == LOSTOK)
#define refusedOnly(x) (rst[x] == R503 || rst[x] == R402 || rst[x] == NEW || rst[x] == NEVER)

/* At the end of every run */
proctype Monitor() {
  atomic { timeout -> d_step {
    sums(llen);
    /* P5: every request is answered, and every writer comes to rest */
    assert(ended(0) && ended(1) && ended(2) && ended(3));
    assert((!P[0].up || P[0].st == IDLE && !P[0].due) && (!P[1].up || P[1].st == IDLE && !P[1].due));
    /* P3: an answered call is charged once, and stays charged */
    assert(!(good(0) || good(1) || good(3)) || nk == 1);
    assert(!good(2) || (nu == 1 && nr == 0));
    /* P4: a refusal is final */
    assert(!(rst[2] == R503 || rst[2] == R402) || nu == 0);
    assert(!(refusedOnly(0) && refusedOnly(1) && refusedOnly(3)) || nk == 0);
    /* P6: U with an unknown outcome is reversed, unless its process was killed, or stopped and logged it */
    assert(!(rst[2] == R504) || nu == nr || killed || told);
    assert(nr == 0 || rst[2] == R504);
#ifdef REACH /* not a property: the run must be possible */
#if REACH == 1
#define GOAL rst[2] == R504 && nr == 1                                  /* reversed */
#elif REACH == 2
#define GOAL rst[0] == R504 && rst[1] == OK && nk == 1 && lwho[0] == 0  /* a repetition finds the charge */
#elif REACH == 3
#define GOAL rst[0] == OK && llen > 1 && lid[0] == fenceId              /* decided again after a fence */
#elif REACH == 4
#define GOAL rst[2] == R504 && told
#endif
    assert(!(GOAL));
#endif
  } }
}

init { d_step { P[0].up = 1; P[1].up = 1; P[0].rev = NOREV; P[1].rev = NOREV };
  atomic { run Writer(0); run Writer(1); run Env(); run Monitor() } }
