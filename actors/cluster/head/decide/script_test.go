package decide

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/store"
)

// script is a head with a store in memory, which a text tells what happens.
type script struct {
	t      *testing.T
	mem    *memory
	term   store.Term
	h      *Head
	now    time.Time
	held   bool // commits are not answered
	commit int64
	ops    []store.Op
	asks   int64
	conns  map[string]int64
	names  map[int64]string
	out    strings.Builder
}

// TestScripts runs the texts of testdata: what happens stands above the line, what a head does of it
// below. Each input is one word with arguments:
//
//	head                  begins a term: what is not stored is forgotten
//	enroll HOST…          makes members
//	connect HOST          of an agent, pid=N memory=N binary=B; has=JOB.PROC.GEN[.PID][.over][.ready] for its processes
//	gone, quiet, heard    of an agent's connection; gone silent=true
//	elapsed N             the timer
//	says, late HOST JSON  a message of an agent; late on a connection that it has no more
//	submit, stop, drain, remove, down, token, join   requests
//	widths JOB N…         a leader's word that it can run with so many replicas, each a process of bytes=B
//	hold, release, stored, fail, over   the store; with hold it does not answer
//	clock D               the clocks are set by so much
//	jobs, hosts           what is known
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{t: t, mem: &memory{}, now: time.Unix(1e9, 0).UTC()}
		s.begin()
		s.out.Reset()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			s.out.Reset()
			for _, line := range append([]string{d.Cmd + " " + argsOf(d)}, strings.Split(d.Input, "\n")...) {
				if line = strings.TrimSpace(line); line != "" {
					s.do(strings.Fields(line))
				}
			}
			return s.out.String()
		})
	})
}

func argsOf(d *datadriven.TestData) string {
	var out []string
	for _, a := range d.CmdArgs {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

func (s *script) begin() {
	term := s.mem.lead()
	h, _, err := Load(Options{Term: term.Number(), Binary: "bin", Version: "1",
		Fill: func(n int64) int64 { return n }}, term)
	require.NoError(s.t, err)
	s.h, s.term, s.held, s.commit = h, term, false, 0
	s.conns, s.names = map[string]int64{}, map[int64]string{}
	s.step(Begin{Text: fmt.Sprint("term ", term.Number())})
}

// step gives the head an input and prints what it does.
func (s *script) step(in Input) {
	for _, e := range s.h.Step(s.now, in) {
		s.show(e)
		if c, ok := e.(Commit); ok {
			s.commit, s.ops = c.N, c.Ops
			if !s.held {
				s.store()
				s.step(Stored{c.N})
			}
		}
	}
}

// store makes the commit that waits.
func (s *script) store() {
	_, err := s.term.Commit(s.ops)
	require.NoError(s.t, err)
	s.ops = nil
}

func (s *script) show(e Effect) {
	p := func(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }
	switch e := e.(type) {
	case Commit:
		var keys []string
		for _, op := range e.Ops {
			sign := ""
			if op.Value == nil {
				sign = "-"
			}
			keys = append(keys, sign+op.Key)
		}
		p("  store %s", strings.Join(keys, " "))
	case Send:
		text, err := json.Marshal(e.M)
		require.NoError(s.t, err)
		p("→ %s %s", s.names[e.Conn], text)
	case Close:
		p("close %d", e.Conn)
	case Answer:
		switch {
		case e.Err != nil:
			p("answer %d: %v", e.Ask, e.Err)
		case e.Job.ID != "":
			p("answer %d: job %s %s", e.Ask, e.Job.ID, e.Job.State)
		case e.Member.Name != "":
			p("answer %d: host %s drained=%v", e.Ask, e.Member.Name, e.Member.Drained)
		default:
			p("answer %d: ok %v", e.Ask, e.Hosts)
		}
	case Wake:
		p("  wake %d in %v", e.Timer, e.After)
	case Revive:
		p("  revive %s", e.Host)
	case Revoked:
		p("  revoked %v", e.Serials)
	case Tell:
		p("%d %s %s", e.Event.N, e.Event.Kind, e.Event.Text)
	case Stuck:
		p("  stuck: %v", e.Err)
	}
}

// options are the key=value words of a line, the others its names.
func options(words []string) (names []string, o map[string]string) {
	o = map[string]string{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			o[k] = v
		} else {
			names = append(names, w)
		}
	}
	return names, o
}

func number(text string, or int64) int64 {
	var n int64
	if _, err := fmt.Sscan(text, &n); err != nil {
		return or
	}
	return n
}

func (s *script) ask() int64 {
	s.asks++
	return s.asks
}

func (s *script) do(words []string) {
	names, o := options(words[1:])
	host := ""
	if len(names) > 0 {
		host = names[0]
	}
	switch words[0] {
	case "head":
		s.begin()
	case "enroll":
		in := Enroll{Serials: map[string]string{}, Last: true}
		for _, n := range names {
			in.Serials[n] = "serial-" + n
		}
		s.step(in)
	case "connect":
		s.connect(host, o)
	case "gone":
		s.step(Gone{Host: host, Conn: s.conn(host, o), Why: "the connection ended",
			Silent: o["silent"] != ""})
	case "quiet":
		s.step(Quiet{Host: host, Conn: s.conn(host, o), For: 410 * time.Millisecond})
	case "heard":
		s.step(Heard{Host: host, Conn: s.conn(host, o), Gap: 623 * time.Millisecond})
	case "elapsed":
		s.step(Elapsed{number(host, 0)})
	case "says":
		m := control.Message{}
		require.NoError(s.t, json.Unmarshal([]byte(strings.Join(words[2:], " ")), &m))
		s.step(Said{Host: host, Conn: s.conns[host], M: m})
	case "late": // on a connection that it has no more
		m := control.Message{}
		require.NoError(s.t, json.Unmarshal([]byte(strings.Join(words[2:], " ")), &m))
		s.step(Said{Host: host, Conn: 999, M: m})
	case "widths":
		m := control.Message{Kind: control.Widths, Job: host, Gen: int(number(o["gen"], 1))}
		for _, n := range names[2:] {
			k := int(number(n, 0))
			w := control.Width{Replicas: k, Procs: k, Args: []string{"plan.dp=" + n}}
			for range k {
				w.Bytes = append(w.Bytes, number(o["bytes"], 0))
			}
			m.Widths = append(m.Widths, w)
		}
		s.step(Said{Host: names[1], Conn: s.conns[names[1]], M: m})
	default:
		s.request(words[0], host, o)
	}
}

func (s *script) conn(host string, o map[string]string) int64 {
	return number(o["conn"], s.conns[host])
}

func (s *script) connect(host string, o map[string]string) {
	n := int64(len(s.names) + 101)
	s.names[n] = host
	s.conns[host] = n
	in := Connect{Ask: s.ask(), Conn: n, Name: host, Serial: "serial-" + host, Remote: "addr-" + host,
		Hello: control.Message{Info: &control.Info{Name: host, Binary: "bin", Version: "1",
			Pid: int(number(o["pid"], 7)), Memory: number(o["memory"], 0), Probe: "probe-" + host,
			Clock: s.now.UnixNano()}}}
	if b := o["binary"]; b != "" {
		in.Hello.Info.Binary = b
	}
	if b := o["serial"]; b != "" {
		in.Serial = b
	}
	if o["has"] != "" {
		for _, x := range strings.Split(o["has"], ",") {
			var p control.Proc
			f := strings.Split(x, ".")
			p.Job, p.Proc, p.Gen = f[0], int(number(f[1], 0)), int(number(f[2], 0))
			for _, w := range f[3:] {
				switch w {
				case "over":
					p.Over, p.Text, p.Code = true, "was killed", -1
				case "ready":
					p.Ready = true
				default:
					p.Pid, p.Addr = int(number(w, 0)), "at-"+w
				}
			}
			in.Hello.Procs = append(in.Hello.Procs, p)
		}
	}
	s.step(in)
}

func (s *script) request(word, name string, o map[string]string) {
	switch word {
	case "submit":
		spec := control.Spec{Args: []string{"train"}, Dir: "/d", Procs: int(number(o["procs"], 1)),
			Hosts: int(number(o["hosts"], 0)), User: "u", Name: "train x",
			Restarts: int(number(o["restarts"], 0)), Window: float64(number(o["window"], 0))}
		if o["keep"] != "" {
			spec.Keep = []string{o["keep"]}
		}
		if o["dir"] != "" {
			spec.Dir = o["dir"]
		}
		if o["files"] != "" {
			spec.Files = map[string][]byte{"big": make([]byte, number(o["files"], 0))}
		}
		s.step(Submit{Ask: s.ask(), By: By{Name: spec.User}, Spec: spec})
	case "stop":
		s.step(Stop{Ask: s.ask(), Job: name, Now: o["now"] != "", Int: o["int"] != ""})
	case "drain":
		s.step(Drain{Ask: s.ask(), Host: name, Back: o["back"] != ""})
	case "remove":
		s.step(Remove{Ask: s.ask(), Host: name})
	case "down":
		s.step(Down{Ask: s.ask(), Code: 1})
	case "token":
		s.step(NewToken{Ask: s.ask(), Key: name, Until: s.now.Add(TokenLife)})
	case "join":
		s.step(Join{Ask: s.ask(), Key: o["key"], Name: name, Remote: "1.2.3.4:5",
			Binary: "bin" + o["binary"],
			Serial: "joined-" + name, Fault: o["fault"]})
	case "sync":
		s.step(Sync{s.ask()})
	case "note":
		s.step(Note{Event{Kind: "disk", Text: name}})
	case "clock":
		d, err := time.ParseDuration(name)
		require.NoError(s.t, err)
		s.now = s.now.Add(d)
	case "hold":
		s.held = true
	case "release":
		s.held = false
		s.store()
		s.step(Stored{s.commit})
	case "stored":
		if name == "" {
			s.store()
		}
		s.step(Stored{number(name, s.commit)})
	case "fail":
		s.step(Unstored{s.commit, errors.New("no space")})
	case "over":
		s.step(Over{Refused: o["refused"] != ""})
	default:
		s.known(word)
	}
}

func (s *script) known(word string) {
	switch word {
	case "jobs":
		for _, j := range s.h.Jobs() {
			fmt.Fprintf(&s.out, "%s %s on %v %q code %d restarts %d width %d", j.ID, j.State, j.Hosts, j.Why,
				j.Code,
				j.Restarts, j.Width)
			for n, p := range j.Procs {
				fmt.Fprintf(&s.out, " [%d %s gen %d pid %d over %v]", n, p.Host, p.Gen, p.Pid, p.Over)
			}
			fmt.Fprintln(&s.out)
		}
	case "hosts":
		for _, x := range s.h.Hosts() {
			fmt.Fprintf(&s.out, "%s %s job %q %v\n", x.Name, x.State, x.Job, x.Procs)
		}
	default:
		s.t.Fatalf("no such word: %s", word)
	}
}
