package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
)

// Fate is what happens to a message that a test looks at.
type Fate uint8

// The fates.
const (
	Pass Fate = iota
	Lose
	Twice
)

// FaultKind says what goes wrong.
type FaultKind uint8

// The faults. Rank and Peer are ranks; At is when the fault begins, For how long it lasts (0: to the end).
const (
	Straggler  FaultKind = iota // Rank's jobs take Factor times as long
	SlowLink                    // messages Rank → Peer take Factor times as long
	CutLink                     // messages Rank → Peer are lost while it lasts; with Both also the other way
	LateLoader                  // reading the data of a step takes Delay longer
	Crash                       // Rank ends; who watches it is told
	LostMsg                     // the Nth message with data from Rank is lost
	LateMsg                     // the Nth message with data from Rank comes Delay later
	DupMsg                      // the Nth message with data from Rank comes twice
	Restart                     // Rank ends and is back after For, without what it held: a new epoch begins
	// the router's logits on Rank are not finite in step Nth, whenever it is taken
	Wild
	// Rank ends together with the coordinator, and both are back after For without what they held, as with a
	// process that has both
	Succession
	// Rank ends, and For later the coordinator hears that no other takes its place: the run saves what the
	// others hold, and ends
	Gone
	// every message that Rank sends or is sent while it lasts comes twice, orders, answers and credits among
	// them, the second time up to Delay later
	Echo
)

var faultNames = []string{"straggler", "slow-link", "cut-link", "late-loader", "crash", "lost-message", "late-message",
	"duplicate-message", "crash-restart", "wild-logits", "succession", "gone-for-good", "echo"}

// String is the fault's name in scripts.
func (k FaultKind) String() string { return faultNames[k] }

// Fault is one entry of a script.
type Fault struct {
	Kind       FaultKind
	Rank, Peer int
	Both       bool
	At, For    int64 // nanoseconds
	Factor     float64
	Delay      int64
	Nth        int
	Host       string // that Rank is back on, "" for where it was
}

// String names the fault with its place and time.
func (f Fault) String() string {
	return fmt.Sprintf("%v rank %d peer %d at %dns for %dns factor %.2f delay %dns message %d", f.Kind,
		f.Rank, f.Peer, f.At, f.For, f.Factor, f.Delay, f.Nth)
}

// FaultNamed is the fault of a name.
func FaultNamed(name string) (k FaultKind, ok bool) {
	i := slices.Index(faultNames, name)
	return FaultKind(max(0, i)), i >= 0
}

// FaultNames are the names of all faults.
func FaultNames() []string { return slices.Clone(faultNames) }

// Harmless reports whether a run must end well in spite of faults, where nobody notices that messages are lost:
// no rank is lost for good, no message, and not all of so many steps in a row are given up that the run ends.
func Harmless(faults []Fault) bool {
	wild := map[int]bool{}
	for _, f := range faults {
		switch f.Kind {
		case CutLink, Crash, LostMsg, Gone:
			return false
		case Wild:
			wild[f.Nth] = true
		}
	}
	for first := range wild { //lfvet:order any that is found decides
		n := 0
		for wild[first+n] {
			n++
		}
		if n >= core.VoidsMost {
			return false
		}
	}
	return true
}

// Draw makes n faults from a seed for a run of the given ranks and length, of the kinds that kinds lists.
func Draw(seed uint64, n, ranks int, length int64, kinds ...FaultKind) (out []Fault) {
	r := rand.New(rand.NewPCG(seed, 0xfa17))
	for range n {
		f := Fault{Kind: kinds[r.IntN(len(kinds))], Rank: r.IntN(ranks), Peer: r.IntN(ranks), Both: r.IntN(2) == 0,
			At: r.Int64N(max(1, length)), Factor: 1.1 + 2*r.Float64(), Delay: r.Int64N(max(1, length/4)),
			Nth: 1 + r.IntN(20)}
		f.For = 1 + r.Int64N(max(1, length/2))
		out = append(out, f)
	}
	return
}

// faultState is what is wrong at the moment.
type faultState struct {
	any        bool
	doubles    bool // some messages come twice
	list       []Fault
	sent       []int            // messages with data by rank
	twice      map[twin]*copies // messages of which more than one is under way
	lateLoader int64
}

// copies are those of a doubled message.
type copies struct {
	left int  // under way, beside the first
	came bool // the first has come
}

// twin names a message that was doubled on its way.
type twin struct {
	from, to actors.Ref
	number   uint64
}

func twinOf(to actors.Ref, m *actors.Message) twin { return twin{m.From, to, m.Number} }

// again reports whether m is the second of a doubled message.
func (f *faultState) again(to actors.Ref, m *actors.Message) bool {
	if m.Number == 0 || len(f.twice) == 0 {
		return false
	}
	k := twinOf(to, m)
	x := f.twice[k]
	if x == nil || !x.came {
		if x != nil {
			x.came = true
		}
		return false
	}
	f.fewer(k, x)
	return true
}

// doubled notes that one more of a message is under way than was sent.
func (f *faultState) doubled(to actors.Ref, m *actors.Message) {
	k := twinOf(to, m)
	if f.twice[k] == nil {
		f.twice[k] = &copies{}
	}
	f.twice[k].left++
	if m.Payload != nil {
		m.Payload.Retain()
	}
}

// fewer notes that one of the copies of a message is not under way any more.
func (f *faultState) fewer(k twin, x *copies) {
	if x.left--; x.left == 0 {
		delete(f.twice, k)
	}
}

// faulty is an actor that begins and ends the faults of a script.
type faulty struct{ s *Sim }

// init adds an actor that brings the faults about, with one message for the begin of each and one
// for the end of those that last. Without faults it adds none, so that such a run keeps its hash.
func (f *faultState) init(s *Sim) {
	if len(s.o.Faults) == 0 {
		return
	}
	f.any, f.list, f.sent, f.twice = true, s.o.Faults, make([]int, len(s.l.Ranks)), map[twin]*copies{}
	for i := range f.list {
		f.doubles = f.doubles || f.list[i].Kind == DupMsg || f.list[i].Kind == Echo
	}
	self := s.add()
	s.cells[self].b, s.extras[self].name = faulty{s}, "faults"
	for i, x := range f.list {
		s.post(x.At, self, &actors.Message{Kind: actors.Tick, From: self, Step: int64(i)})
		if x.For > 0 {
			s.post(x.At+x.For, self, &actors.Message{Kind: actors.Tick, From: self, Step: int64(i), Port: 1})
		}
	}
}

// Receive implements actors.Behaviour.
func (f faulty) Receive(_ actors.Context, m *actors.Message) {
	s := f.s
	x := s.faults.list[m.Step]
	begin := m.Port == 0
	switch x.Kind {
	case Straggler:
		if s.nodes[x.Rank].dev.slow = 1; begin {
			s.nodes[x.Rank].dev.slow = x.Factor
		}
	case LateLoader:
		if s.faults.lateLoader = 0; begin {
			s.faults.lateLoader = x.Delay
		}
	case Crash:
		if begin && !s.ended {
			s.crash(s.l.RankRefs[x.Rank], true)
		}
	case Gone:
		switch ref := s.l.RankRefs[x.Rank]; {
		case s.ended:
		case begin:
			s.crash(ref, true)
		default:
			s.post(s.now, s.l.Coordinator, downOf(ref, &s.cells[ref]))
		}
	case Restart:
		switch {
		case s.ended:
		case begin:
			s.crash(s.l.RankRefs[x.Rank], false)
		default:
			s.revive(x.Rank, x.Host)
		}
	case Succession:
		switch {
		case s.ended:
		case begin:
			s.crash(s.l.RankRefs[x.Rank], false)
			s.behead()
		default:
			s.revive(x.Rank, x.Host)
			s.succeed()
		}
	}
}

// behead ends the coordinator; what it has under way ends with it.
func (s *Sim) behead() {
	if c := &s.cells[s.l.Coordinator]; !c.dead {
		c.dead = true
		c.life++
	}
}

// durable is what is known of checkpoints without the coordinator: the state of the newest, and those whose
// commit is under way.
type durable struct {
	step   int64
	values []float64
	under  map[actors.JobID]durable
}

// succeed starts a coordinator in the place of the one that has ended. It hears of the ranks that are not
// there, as from whoever started them.
func (s *Sim) succeed() {
	ref := s.l.Coordinator
	c := &s.cells[ref]
	if !c.dead || c.back {
		return
	}
	run := s.run
	run.Durable = run.First - 1
	if d := s.durable; d.values != nil {
		filed := core.FiledOf(d.values)
		run.Durable, run.OptimSteps = d.step, filed.Updates
		run.LossScale.Scale, run.LossScale.Good, run.LossScale.Left = filed.Scale, filed.Good, filed.Left
		run.LossScale.Reach = filed.Reach
	}
	if c.b, c.back = core.NewCoordinator(&run), true; s.faults.doubles {
		c.b = core.NewOnce(c.b)
	}
	s.post(s.now, ref, &actors.Message{Kind: actors.Started, From: ref, Step: int64(c.life)})
	for _, r := range s.l.RankRefs {
		if x := &s.cells[r]; x.dead && !x.back {
			s.post(s.now+1, ref, downOf(r, x))
		}
	}
}

// downOf tells that a rank has ended, and whether another takes its place.
func downOf(ref actors.Ref, x *cell) *actors.Message {
	m := &actors.Message{Kind: actors.Down, From: ref, Step: int64(x.life), Text: "has crashed"}
	if x.gone {
		m.Member = 1
	}
	return m
}

// wild makes a job's results those of a router whose logits are not finite.
func (s *Sim) wild(d *device, j *actors.Job, m *actors.Message) {
	for i := range s.faults.list {
		if x := &s.faults.list[i]; x.Kind == Wild && x.Rank == d.l.Rank && int64(x.Nth) == j.Step &&
			j.Kind == actors.RunSegment {
			used := core.UsageOf(d.values[:])
			used.Wild = 1
			used.Put(d.values[:])
			m.Text = fmt.Sprintf("rank %d: %v: logits that are not finite", x.Rank, j.Action)
		}
	}
}

// Waits implements actors.Behaviour.
func (f faulty) Waits() actors.Wait { return actors.Wait{For: actors.None} }

// crash ends a rank with all that it holds and tells who watches it.
func (s *Sim) crash(ref actors.Ref, forGood bool) {
	c := &s.cells[ref]
	c.gone = c.gone || forGood
	if c.dead {
		return
	}
	c.dead = true
	c.life++
	s.nodes[s.rankOf[ref]].rank.Release()
	if d := c.dev; d.flying { // the results of its job go with it
		for _, o := range d.outs {
			o.Payload.Release()
		}
		d.flying = false
	}
	for _, w := range s.extras[ref].watched {
		s.post(s.now, w, &actors.Message{Kind: actors.Down, From: ref, Step: int64(c.life), Text: "has crashed"})
	}
}

// revive starts a rank that had ended afresh, on a host, "" for where it was.
func (s *Sim) revive(rank int, host string) {
	ref, n := s.l.RankRefs[rank], s.nodes[rank]
	c := &s.cells[ref]
	if !c.dead || c.gone || c.back {
		return
	}
	l, before := n.dev.l, n.dev
	n.dev = device{peak: before.peak, held: before.held, step: before.step, Account: before.Account}
	n.dev.init(s, l, &n.rank)
	n.dev.forget()
	n.rank.Init(l)
	c.back, c.free = true, [4]int64{}
	if host != "" {
		s.run.Hosts = slices.Clone(s.run.Hosts)
		s.run.Hosts[rank] = host
	}
	s.post(s.now, ref, &actors.Message{Kind: actors.Started, From: ref, Step: int64(c.life), Text: host})
}

func (x *Fault) active(now int64) bool { return now >= x.At && (x.For == 0 || now < x.At+x.For) }

func (x *Fault) on(from, to int) bool {
	return x.Rank == from && x.Peer == to || x.Both && x.Rank == to && x.Peer == from
}

// strike decides whether a message is lost, and how much later it comes. Of a doubled one that is lost a copy comes.
func (f *faultState) strike(s *Sim, to actors.Ref, m *actors.Message) (gone bool, late int64) {
	defer func() {
		if k := twinOf(to, m); gone && f.twice[k] != nil {
			f.fewer(k, f.twice[k])
		}
	}()
	from, peer := int(s.rankOf[m.From]), int(s.rankOf[to])
	if from < 0 {
		return
	}
	if m.Payload != nil {
		f.sent[from]++
	}
	for i := range f.list {
		x := &f.list[i]
		switch {
		case x.Kind == CutLink && peer >= 0 && x.on(from, peer) && x.active(s.now):
			return true, 0
		case x.Kind == LostMsg && m.Payload != nil && x.Rank == from && f.sent[from] == x.Nth:
			return true, 0
		case x.Kind == DupMsg && m.Payload != nil && x.Rank == from && f.sent[from] == x.Nth:
			f.doubled(to, m)
			s.post(s.arrival(from, peer, m)+x.Delay, to, m)
		case x.Kind == LateMsg && m.Payload != nil && x.Rank == from && f.sent[from] == x.Nth:
			late += x.Delay
		}
	}
	return
}

// echo has a message that comes at a time come once more for each fault that says so.
func (f *faultState) echo(s *Sim, at int64, to actors.Ref, m *actors.Message) {
	from, peer := int(s.rankOf[m.From]), int(s.rankOf[to])
	for i := range f.list {
		if x := &f.list[i]; x.Kind == Echo && (x.Rank == from || x.Rank == peer) && x.active(s.now) &&
			m.Number != 0 && to != s.l.Observer {
			f.doubled(to, m)
			s.post(at+int64(mix(s.o.Seed^uint64(i), uint64(s.now)^m.Number)%uint64(x.Delay+1)), to, m)
		}
	}
}

// cut reports whether a link is cut.
func (f *faultState) cut(from, to int, now int64) bool {
	for i := range f.list {
		if x := &f.list[i]; x.Kind == CutLink && x.on(from, to) && x.active(now) {
			return true
		}
	}
	return false
}

// group is what faults of links between neighbours of a ring do to a collective that is one event: how many
// times longer it takes, and whether it loses a message.
func (f *faultState) group(ranks []int, now int64) (slow float64, lost bool) {
	slow = 1
	for i, from := range ranks {
		to := ranks[(i+1)%len(ranks)]
		lost = lost || f.cut(from, to, now)
		for k := range f.list {
			if x := &f.list[k]; x.Kind == SlowLink && x.on(from, to) {
				slow = max(slow, x.Factor)
			}
		}
	}
	return
}

// link is a link under the faults of the moment.
func (f *faultState) link(from, to int, l Link) Link {
	for i := range f.list {
		if x := &f.list[i]; x.Kind == SlowLink && x.on(from, to) {
			l.Latency, l.PerByte = int64(float64(l.Latency)*x.Factor), l.PerByte*x.Factor
		}
	}
	return l
}
