package sim

import (
	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// inFlight is a message on its way, in one line of a cache: a large simulation has tens of thousands under
// way. What few messages carry lies elsewhere.
// In the words of the field: in-flight messages.
type inFlight struct {
	step    int64
	blob    *Blob
	to      actors.Ref
	from    actors.Ref
	epoch   uint32
	kind    actors.Kind
	with    carried
	action  [3]uint32 // plan.Action, packed so that it needs no padding
	segment int32
	job     uint64 // or comm and member
	port    int32
	rest    int32 // place in Sim.rests, or the number of credits
}

// carried says what a flight has besides its numbers.
type carried uint8

const (
	carriesRest    carried = 1 << iota // Out, Values, Text, Err or Number
	carriesResults                     // Out and Values are the sender's device's
	carriesCredit                      // rest is the one value
	carriesJob                         // job is a job's or timer's
)

// rest is what few messages carry.
type rest struct {
	out    []actors.Output
	values []float64
	text   string
	err    error
	number uint64
	body   actors.Payload // other than a Blob
}

const flightsPage = 1 << 10

// pack puts m into a place of its own and returns the place.
func (s *Sim) pack(to actors.Ref, m *actors.Message) int32 {
	if len(s.unused) == 0 {
		page := int32(len(s.flights) * flightsPage)
		s.flights = append(s.flights, make([]inFlight, flightsPage))
		for i := int32(flightsPage) - 1; i >= 0; i-- {
			s.unused = append(s.unused, page+i)
		}
	}
	n := len(s.unused) - 1
	i := s.unused[n]
	s.unused = s.unused[:n]
	f := s.flight(i)
	// Field by field: a processor waits for all parts of a literal to be written before it copies it.
	f.step, f.to, f.from, f.epoch, f.kind = m.Step, to, m.From, m.Epoch, m.Kind
	f.segment, f.port = m.Segment, m.Port
	a := &m.Action
	f.action[0], f.action[2] = uint32(a.Kind), uint32(a.Micro)
	f.action[1] = uint32(uint16(a.Stage)) | uint32(uint16(a.Chunk))<<16
	f.with, f.job = 0, uint64(uint32(m.Comm))|uint64(uint32(m.Member))<<32
	var body actors.Payload // of a protocol whose payloads are no sizes
	if m.Payload != nil {
		if b, sized := m.Payload.(*Blob); sized {
			f.blob = b
		} else {
			body = m.Payload
		}
	}
	if m.Job != 0 {
		f.with, f.job = carriesJob, uint64(m.Job)
	}
	switch {
	case m.Number != 0 || body != nil:
		f.with |= carriesRest
		f.rest = s.keep(rest{out: m.Out, values: m.Values, text: m.Text, err: m.Err, number: m.Number, body: body})
	case m.Out == nil && m.Values == nil && m.Text == "" && m.Err == nil:
	case m.Kind == actors.Credit && len(m.Values) == 1:
		f.with |= carriesCredit
		f.rest = int32(core.CreditsOf(m.Values))
	case m.Kind == actors.Done && s.lies(to, m):
		f.with |= carriesResults
	default:
		f.with |= carriesRest
		f.rest = s.keep(rest{out: m.Out, values: m.Values, text: m.Text, err: m.Err, number: 0})
	}
	return i
}

// lies reports whether all results of a Done are in the lists of its actor's device, and end with it.
func (s *Sim) lies(to actors.Ref, m *actors.Message) bool {
	d := s.cells[to].dev
	return d != nil && m.Text == "" && m.Err == nil && core.Same(m.Values, d.values[:])
}

// keep puts x aside and returns the number under which it lies; numbers that were given back are used first.
func (s *Sim) keep(x rest) int32 {
	if n := len(s.restsUnused); n > 0 {
		i := s.restsUnused[n-1]
		s.restsUnused = s.restsUnused[:n-1]
		s.rests[i] = x
		return i
	}
	s.rests = append(s.rests, x)
	return int32(len(s.rests) - 1)
}

func (s *Sim) flight(i int32) *inFlight {
	return &s.flights[uint32(i)/flightsPage][uint32(i)%flightsPage]
}

// unpack takes a message from its place, which then serves the next.
func (s *Sim) unpack(i int32, m *actors.Message) (to actors.Ref) {
	f := s.flight(i)
	s.unused = append(s.unused, i)
	m.Kind, m.From, m.Epoch, m.Step, m.Segment, m.Port = f.kind, f.from, f.epoch, f.step, f.segment, f.port
	m.Action.Kind, m.Action.Stage, m.Action.Chunk, m.Action.Micro = plan.Kind(f.action[0]),
		int16(f.action[1]), int16(f.action[1]>>16), int32(f.action[2])
	m.Payload, m.Out, m.Values, m.Text, m.Err = nil, nil, nil, "", nil
	if f.blob != nil {
		m.Payload = f.blob
		f.blob = nil
	}
	m.Job, m.Comm, m.Member, m.Number = 0, 0, 0, 0
	if f.with&carriesJob != 0 {
		m.Job = actors.JobID(f.job)
	} else {
		m.Comm, m.Member = int32(f.job), int32(f.job>>32)
	}
	switch {
	case f.with&carriesCredit != 0:
		m.Values = core.PutCredits(s.credit[:], int(f.rest))
	case f.with&carriesResults != 0:
		if c := &s.cells[f.to]; c.life == f.epoch { // else its results went with the actor
			m.Out, m.Values = c.dev.outs, c.dev.values[:]
		}
	case f.with&carriesRest != 0:
		x := &s.rests[f.rest]
		m.Out, m.Values, m.Text, m.Err, m.Number = x.out, x.values, x.text, x.err, x.number
		if x.body != nil {
			m.Payload = x.body
		}
		*x = rest{}
		s.restsUnused = append(s.restsUnused, f.rest)
	}
	return f.to
}

// drop releases what a message owns.
func (s *Sim) drop(m *actors.Message) {
	if m.Payload != nil {
		m.Payload.Release()
	}
	for _, o := range m.Out {
		if o.Payload != nil {
			o.Payload.Release()
		}
	}
}

// recycle takes back the list of a Done that its actor has read; a device has its own.
func (s *Sim) recycle(to actors.Ref, m *actors.Message) {
	if s.cells[to].dev == nil && cap(m.Out) > 0 {
		clear(m.Out)
		s.outs = append(s.outs, m.Out[:0])
	}
}
