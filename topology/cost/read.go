package cost

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs"
)

const fileBytesMax = 1 << 20

// field is one setting of a cluster file: where it goes and in which units it may be given.
type field struct {
	key   string
	units map[string]float64
	zero  bool                 // 0 is allowed
	must  bool                 // there is no default
	at    func(m *Machine) any // a *float64 or *int
}

// inverse are keys of rates that are kept as their inverses.
var inverse = map[string]bool{"host.bandwidth": true, "network.bandwidth": true}

func (f *field) set(m *Machine, v float64) {
	if inverse[f.key] {
		v = 1 / v
	}
	switch p := f.at(m).(type) {
	case *float64:
		*p = v
	case *int:
		*p = int(v)
	}
}

func (f *field) get(m *Machine) (v float64) {
	switch p := f.at(m).(type) {
	case *float64:
		v = *p
	case *int:
		v = float64(*p)
	}
	if inverse[f.key] {
		v = 1 / v
	}
	return v
}

var (
	rate  = map[string]float64{"FLOP/s": 1, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15}
	speed = map[string]float64{"B/s": 1, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "Gb/s": 1e9 / 8}
	size  = map[string]float64{"B": 1, "MB": 1e6, "GB": 1e9, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
	clock = map[string]float64{"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
	plain = map[string]float64{"": 1}
)

// shares are keys of values that are parts of a whole.
var shares = map[string]bool{"device.efficiency": true, "device.fp8_efficiency": true, "device.grouped": true,
	"device.stream": true, "device.attention": true, "device.fa2": true, "memory.reserve": true, "host.once": true, "network.once": true,
	"second.efficiency": true}

// later are keys that are written only where they say something.
var later = map[string]bool{"device.fp8": true, "device.fp4": true, "device.fp8_efficiency": true,
	"device.grouped": true, "device.per_expert": true, "device.attention": true,
	"host.price": true, "host.power": true, "device.fa2": true, "host.once": true, "network.once": true, "second.efficiency": true}

var fields = []field{
	{"device.flops", rate, false, true, func(m *Machine) any { return &m.Flops }},
	{"device.fp8", rate, true, false, func(m *Machine) any { return &m.Flops8 }},
	{"device.fp4", rate, true, false, func(m *Machine) any { return &m.Flops4 }},
	{"device.fp8_efficiency", plain, true, false, func(m *Machine) any { return &m.Share8 }},
	{"device.memory", size, false, true, func(m *Machine) any { return &m.Memory }},
	{"device.reserve", plain, true, false, func(m *Machine) any { return &m.Reserve }},
	{"device.bandwidth", speed, false, true, func(m *Machine) any { return &m.Bandwidth }},
	{"device.efficiency", plain, false, false, func(m *Machine) any { return &m.Efficiency }},
	{"device.multiprocessors", plain, true, false, func(m *Machine) any { return &m.Units }},
	{"device.prologue", plain, true, false, func(m *Machine) any { return &m.Prologue }},
	{"device.grouped", plain, true, false, func(m *Machine) any { return &m.Grouped }},
	{"device.per_expert", clock, true, false, func(m *Machine) any { return &m.PerExpert }},
	{"device.stream", plain, false, false, func(m *Machine) any { return &m.Stream }},
	{"device.overhead", clock, true, false, func(m *Machine) any { return &m.Overhead }},
	{"device.scores", plain, true, false, func(m *Machine) any { return &m.Scores }},
	{"device.attention", plain, true, false, func(m *Machine) any { return &m.Attention }},
	{"device.fa2", plain, true, false, func(m *Machine) any { return &m.FA2 }},
	{"host.devices", plain, false, true, func(m *Machine) any { return &m.Devices }},
	{"host.bandwidth", speed, false, true, func(m *Machine) any { return &m.Local.PerByte }},
	{"host.once", plain, true, false, func(m *Machine) any { return &m.Near }},
	{"host.latency", clock, true, true, func(m *Machine) any { return &m.Local.Latency }},
	{"host.copy", speed, false, false, func(m *Machine) any { return &m.Copy }},
	{"host.price", plain, true, false, func(m *Machine) any { return &m.Price }},
	{"host.power", plain, true, false, func(m *Machine) any { return &m.Power }},
	{"network.hosts", plain, false, true, func(m *Machine) any { return &m.Hosts }},
	{"network.bandwidth", speed, false, true, func(m *Machine) any { return &m.Remote.PerByte }},
	{"network.once", plain, true, false, func(m *Machine) any { return &m.Once }},
	{"network.latency", clock, true, true, func(m *Machine) any { return &m.Remote.Latency }},
	{"second.from", plain, false, false, func(m *Machine) any { return &m.second().From }},
	{"second.flops", rate, false, false, func(m *Machine) any { return &m.second().Flops }},
	{"second.memory", size, false, false, func(m *Machine) any { return &m.second().Memory }},
	{"second.bandwidth", speed, false, false, func(m *Machine) any { return &m.second().Bandwidth }},
	{"second.efficiency", plain, true, false, func(m *Machine) any { return &m.second().Efficiency }},
	{"second.overhead", clock, true, false, func(m *Machine) any { return &m.second().Overhead }},
}

// counts are the settings that are whole numbers.
var counts = map[string]bool{"host.devices": true, "network.hosts": true, "second.from": true,
	"device.multiprocessors": true}

// second are the devices of another kind, made where there were none.
func (m *Machine) second() *Second {
	if m.Second == nil {
		m.Second = &Second{}
	}
	return m.Second
}

// kinds holds a second kind of devices to be whole.
func (r *reader) kinds() {
	s := r.m.Second
	if s == nil {
		return
	}
	for _, f := range []string{"second.from", "second.flops", "second.memory", "second.bandwidth"} {
		if r.seen[f] == 0 {
			r.fault(f, "is missing", "a second kind of devices has all of second.from, flops, memory and bandwidth")
		}
	}
	if r.seen["second.overhead"] == 0 {
		s.Overhead = r.m.Overhead
	}
	if n := r.m.Devices * r.m.Hosts; s.From >= n && r.seen["second.from"] > 0 {
		r.fault("second.from", fmt.Sprintf("there are %d devices, which begin with number 0", n), "")
	}
}

// reader walks a cluster file: YAML of two levels of mappings with one value a line.
type reader struct {
	file string
	line int
	errs []error
	m    *Machine
	seen map[string]int
	soft bool   // it is of software
	with string // the software that a cluster file names
}

// Read parses a cluster file. Errors are *configs.Error values, all faults of the file joined.
func Read(file string, text []byte) (*Machine, error) {
	if len(text) > fileBytesMax {
		return nil, &configs.Error{File: file, Why: "more than 1 MiB"}
	}
	r := &reader{file: file, seen: map[string]int{}, m: usual()}
	r.lines(text)
	r.line = 0
	for _, f := range fields {
		if f.must && r.seen[f.key] == 0 {
			r.fault(f.key, "is missing", "")
		}
	}
	r.connected()
	if r.m.Prologue > 0 && r.m.Units == 0 {
		r.line = r.seen["device.prologue"]
		r.fault("device.prologue", "is a part of tiles, which are dealt to multiprocessors",
			"set device.multiprocessors too")
	}
	r.kinds()
	r.m.said = r.seen
	if err := errors.Join(r.errs...); err != nil || r.with == "" {
		return r.m, err
	}
	return r.m.With(r.with)
}

// lines takes the settings of a description one after the other.
func (r *reader) lines(text []byte) {
	section := ""
	for i, line := range strings.Split(string(text), "\n") {
		r.line = i + 1
		if at := strings.Index(line, "#"); at >= 0 && (at == 0 || line[at-1] == ' ' || line[at-1] == '\t') {
			line = line[:at]
		}
		if line = strings.TrimRight(line, " \t\r"); line == "" {
			continue
		}
		key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		inner := line[0] == ' '
		switch {
		case !ok || line[0] == '\t':
			r.fault("", "is no \"key: value\"", "")
		case !inner && value == "":
			section = key
		case inner:
			r.set(section+"."+key, value)
		default:
			section = ""
			r.set(key, value)
		}
	}
}

func (r *reader) fault(key, why, try string) {
	r.errs = append(r.errs, &configs.Error{File: r.file, Line: r.line, Key: key, Why: why, Try: try})
}

// set takes one setting of the description of a cluster. A key that is unknown or there twice is a
// fault, since a misspelt one would silently keep its default.
func (r *reader) set(key, value string) {
	if first := r.seen[key]; first > 0 {
		r.fault(key, fmt.Sprintf("is there twice, first in line %d", first), "keep one of them")
		return
	}
	r.seen[key] = r.line
	if r.soft {
		r.program(key, value)
		return
	}
	switch key {
	case "name":
		r.m.Name = value
		return
	case "software":
		r.with = value
		return
	case "network.cables":
		r.cables(value)
		return
	case "network.dispatch":
		if r.m.Dispatch = value == "once"; !r.m.Dispatch && value != "copies" {
			r.fault(key, fmt.Sprintf("%q is no way to send rows to experts", value),
				"write copies, where each expert's copy of a row travels by itself, or once, as DeepEP sends them")
		}
		return
	}
	for _, f := range fields {
		if f.key == key {
			r.number(f, value)
			return
		}
	}
	var known []string
	for _, k := range Keys() {
		known = append(known, k.Name)
	}
	r.fault(key, "is not a setting of a cluster", "there are "+strings.Join(known, ", "))
}

// number reads a number with its unit into a field. All faults name the units or the range that would be right.
func (r *reader) number(f field, value string) {
	digits, unit, _ := strings.Cut(value, " ")
	v, err := strconv.ParseFloat(digits, 64)
	factor, known := f.units[strings.TrimSpace(unit)]
	names := f.names()
	switch {
	case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
		r.fault(f.key, fmt.Sprintf("%q is not a number", digits), "")
	case !known && f.units[""] > 0:
		r.fault(f.key, fmt.Sprintf("%q: the value has no unit", value), "write the number alone")
	case !known:
		r.fault(f.key, fmt.Sprintf("%q is not a unit for it", unit), "use one of "+strings.Join(names, ", "))
	case v < 0 || v == 0 && !f.zero:
		r.fault(f.key, fmt.Sprintf("%v must be greater than 0", v), "")
	case counts[f.key] && (v != math.Trunc(v) || v > 1<<20):
		r.fault(f.key, fmt.Sprintf("%v is not a count up to %d", v, 1<<20), "")
	case strings.HasSuffix(f.key, ".reserve") && v >= 1:
		r.fault(f.key, fmt.Sprintf("%v leaves no memory", v), "write a share below 1, as 0.04")
	case shares[f.key] && v > 1:
		r.fault(f.key, fmt.Sprintf("%v is more than all of it", v), "write a share, as 0.6")
	default:
		f.set(r.m, v*factor)
	}
}

// cables reads "0-1 1-2": which hosts are joined.
func (r *reader) cables(value string) {
	for _, pair := range strings.Fields(strings.Trim(value, "[]")) {
		var c [2]int
		if n, err := fmt.Sscanf(strings.Trim(pair, ","), "%d-%d", &c[0], &c[1]); n != 2 || err != nil ||
			min(c[0], c[1]) < 0 {
			r.fault("network.cables", fmt.Sprintf("%q is no pair of hosts", pair), "write 0-1 1-2")
			return
		}
		r.m.Joined = append(r.m.Joined, c)
	}
}

// connected refuses a network in which a host cannot be reached.
func (r *reader) connected() {
	if r.m.Joined == nil {
		return
	}
	r.line = r.seen["network.cables"]
	seen := make([]bool, r.m.Hosts)
	reach := []int{0}
	seen[0] = true
	for len(reach) > 0 {
		h := reach[0]
		reach = reach[1:]
		for _, c := range r.m.Joined {
			if max(c[0], c[1]) >= r.m.Hosts {
				r.fault("network.cables", fmt.Sprintf("cable %d-%d, but network.hosts is %d", c[0], c[1],
					r.m.Hosts), "")
				return
			}
			for i := range 2 {
				if c[i] == h && !seen[c[1-i]] {
					seen[c[1-i]] = true
					reach = append(reach, c[1-i])
				}
			}
		}
	}
	for h, ok := range seen {
		if !ok {
			r.fault("network.cables", fmt.Sprintf("host %d is not connected", h), "")
			return
		}
	}
}

// Write is the text of a machine that Read reads back.
func (m *Machine) Write() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\n", m.Name)
	if m.Software.Name != "" {
		fmt.Fprintf(&b, "software: %s\n", m.Software.Name)
	}
	units := map[string]string{"device.flops": "GFLOP/s", "device.fp8": "GFLOP/s", "device.fp4": "GFLOP/s",
		"device.memory": "MiB", "device.bandwidth": "GB/s",
		"device.overhead": "us", "device.per_expert": "us", "host.bandwidth": "GB/s",
		"host.latency": "us", "host.copy": "GB/s", "second.flops": "GFLOP/s", "second.memory": "MiB",
		"second.bandwidth": "GB/s", "second.overhead": "us", "network.bandwidth": "GB/s", "network.latency": "us"}
	section := ""
	for i, f := range fields {
		head, key, _ := strings.Cut(f.key, ".")
		if head == "second" && m.Second == nil || later[f.key] && f.get(m) == 0 {
			continue
		}
		if head != section {
			section = head
			fmt.Fprintf(&b, "%s:\n", section)
		}
		unit := units[f.key]
		v := f.get(m) / f.units[unit]
		fmt.Fprintf(&b, "  %s: %s\n", key, strings.TrimSpace(strconv.FormatFloat(v, 'g', 6, 64)+" "+unit))
		last := i+1 == len(fields) || !strings.HasPrefix(fields[i+1].key, head+".")
		if head == "network" && last && m.Dispatch {
			b.WriteString("  dispatch: once\n")
		}
		if head == "network" && last && m.Joined != nil {
			b.WriteString("  cables:")
			for _, c := range m.Joined {
				fmt.Fprintf(&b, " %d-%d", c[0], c[1])
			}
			b.WriteByte('\n')
		}
	}
	return []byte(b.String())
}
