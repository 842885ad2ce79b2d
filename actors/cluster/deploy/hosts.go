package deploy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/configs/exit"
)

// Entry is a host of hosts.yaml.
type Entry struct {
	SSH   string `yaml:"ssh"`   // what ssh is given: a name of its configuration, or user@host
	Name  string `yaml:"name"`  // in the cluster; by default what ssh is given, without user and domain
	Addr  string `yaml:"addr"`  // where other hosts reach it; by default where ssh does
	Ports string `yaml:"ports"` // that may be used there, "7400-7499"; by default any
	// Notice is where it is said that this host is taken back, by default where HostsFile has it, or agent.EnvNotice there.
	Notice string `yaml:"notice"`
}

// HostsFile is hosts.yaml.
type HostsFile struct {
	Name  string  `yaml:"name"`
	Hosts []Entry `yaml:"hosts"`
	// Heads are the names of the hosts that get a head each; by default the first host gets the only one.
	Heads []string `yaml:"heads"`
	// Notice is the file, or the address of a cloud's, that says of each host that it is taken back soon.
	Notice string `yaml:"notice"`
}

// ReadHosts reads hosts.yaml.
func ReadHosts(file string) (h HostsFile, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return h, exit.With(err, exit.Usage)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&h); err != nil && !errors.Is(err, io.EOF) {
		return h, exit.Usagef("%s: %w", file, err)
	}
	if err := h.Check(); err != nil {
		return h, exit.Usagef("%s: %w", file, err)
	}
	return h, nil
}

var nodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// Check completes the names and finds what is wrong.
func (h *HostsFile) Check() error {
	if len(h.Hosts) == 0 {
		return errors.New("there are no hosts: want a list `hosts:` with `ssh:` for each")
	}
	seen := map[string]bool{}
	for i := range h.Hosts {
		e := &h.Hosts[i]
		if e.SSH == "" || strings.HasPrefix(e.SSH, "-") {
			return fmt.Errorf("host %d: %q is nothing that ssh could be given", i+1, e.SSH)
		}
		if e.Name == "" {
			_, name, ok := strings.Cut(e.SSH, "@")
			if !ok {
				name = e.SSH
			}
			e.Name = name
			if short, _, ok := strings.Cut(name, "."); ok && nodeName.MatchString(short) && !digits(short) {
				e.Name = short
			}
			e.Name = strings.ReplaceAll(e.Name, ".", "-") // an address
		}
		switch {
		case !nodeName.MatchString(e.Name) || e.Name == "head":
			return fmt.Errorf("host %d: %q is not a name for a host: letters, digits and dashes, and "+
				"not head; give it a name", i+1, e.Name)
		case seen[e.Name]:
			return fmt.Errorf("two hosts are called %s: give one another name", e.Name)
		}
		seen[e.Name] = true
		if e.Notice = cmp.Or(e.Notice, h.Notice); !GoodNotice(e.Notice) {
			return fmt.Errorf("host %s: notice: %.64q: want an http address, or the absolute path of a file", e.Name, e.Notice)
		}
		if _, err := ParsePorts(e.Ports); err != nil {
			return fmt.Errorf("host %s: %w", e.Name, err)
		}
	}
	return nil
}

// GoodNotice reports whether something may say that a host is taken back: an address, an absolute path, or nothing.
func GoodNotice(at string) bool { return at == "" || path.IsAbs(at) || strings.HasPrefix(at, "http") }

// args are what the agent of a host is told beside who it is.
func (e Entry) args() []string { return []string{"--ports", e.Ports, "--notice", e.Notice} }

// GoodName reports whether a host may have a name.
func GoodName(name string) bool { return nodeName.MatchString(name) && name != "head" }

func digits(s string) bool { _, err := strconv.Atoi(s); return err == nil }

// ParsePorts reads a range of ports, as "7400-7499"; "" is any.
func ParsePorts(s string) (p [2]int, err error) {
	if s == "" {
		return p, nil
	}
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		b = a
	}
	first, err1 := strconv.Atoi(a)
	last, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || first < 1 || last > 65535 || first > last {
		return p, fmt.Errorf("ports %q: want a range as 7400-7499", s)
	}
	return [2]int{first, last}, nil
}
