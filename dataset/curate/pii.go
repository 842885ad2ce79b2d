package curate

import (
	"net/netip"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/lfactor/lfactor/dataset/words"
)

// pii: addresses of people and machines are replaced, as Datatrove's PIIFormatter does. There the place in
// the list of replacements goes on from document to document, in the order in which a process meets them;
// here each document begins the list again, so that the result does not depend on who works on it.
var _ = Register(Kind{Name: "pii", Doc: "replaces e-mail and IP addresses", Source: "Datatrove 0.10 PIIFormatter",
	Settings: func() Settings {
		return &pii{Emails: true, IPs: true, Public: true,
			EmailBy: []string{"email@example.com", "firstname.lastname@example.org"}, IPBy: []string{"22.214.171.124",
				"126.96.36.199", "188.8.131.52", "184.108.40.206", "220.127.116.11", "18.104.22.168"}}
	}})

// pii is its settings.
type pii struct {
	Emails  bool     `yaml:"remove_emails"`
	IPs     bool     `yaml:"remove_ips"`
	Public  bool     `yaml:"only_remove_public_ips"`
	EmailBy []string `yaml:"email_replacement"`
	IPBy    []string `yaml:"ip_replacement"`
}

func (p *pii) Open() (Step, error) {
	if len(p.EmailBy) == 0 {
		return nil, &Fault{"email_replacement", "the list is empty", "give at least one address"}
	}
	if len(p.IPBy) == 0 {
		return nil, &Fault{"ip_replacement", "the list is empty", "give at least one address"}
	}
	return p, nil
}

func (p *pii) Columns() Columns { return Columns{Text: true} }

const octet = `(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)`

var (
	mailDomain = regexp.MustCompile(`^(?:(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z0-9]` +
		`(?:[A-Za-z0-9-]*[A-Za-z0-9])?|\[(?:` + octet + `\.){3}(?:` + octet +
		`|[A-Za-z0-9-]*[A-Za-z0-9]:)\])`)
	ipAddress = regexp.MustCompile(`(?:` + octet + `\.){3}` + octet)
)

func (p *pii) Do(_ *Desk, d *Doc) string {
	if p.Emails {
		d.Text = p.emails(d.Text)
	}
	if p.IPs && strings.Count(d.Text, ".") > 2 {
		i := 0
		d.Text = ipAddress.ReplaceAllStringFunc(d.Text, func(s string) string {
			if !isIP(s, p.Public) {
				return s
			}
			i++
			return p.IPBy[(i-1)%len(p.IPBy)]
		})
	}
	return ""
}

// emails replaces addresses of mail: around each "@" the longest name that begins at a border of a word, and
// the domain behind it.
func (p *pii) emails(text string) string {
	var b strings.Builder
	done, n := 0, 0
	for at := 0; ; {
		next := strings.IndexByte(text[at:], '@')
		if next < 0 {
			break
		}
		at += next + 1
		start := mailName(text, done, at-1)
		if start < 0 {
			continue
		}
		domain := mailDomain.FindStringIndex(text[at:])
		if domain == nil {
			continue
		}
		b.WriteString(text[done:start])
		b.WriteString(p.EmailBy[n%len(p.EmailBy)])
		n++
		at += domain[1]
		done = at
	}
	if done == 0 {
		return text
	}
	return b.String() + text[done:]
}

// mailLetter has the characters of names in addresses, without the dot.
var mailLetter = func() (t [256]bool) {
	for c := range t {
		t[c] = c < 128 && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("!#$%&'*+/=?^_`{|}~-", byte(c)) >= 0)
	}
	return t
}()

// mailName returns where the name in front of the "@" at a byte begins, not before from: -1 for nowhere.
func mailName(text string, from, at int) int {
	first := at
	for first > from && (mailLetter[text[first-1]] || text[first-1] == '.' && first < at && mailLetter[text[first]]) {
		first--
	}
	for s := first; s < at; s++ {
		if !mailLetter[text[s]] {
			continue
		}
		before, _ := utf8.DecodeLastRuneInString(text[:s])
		inWord := s > 0 && words.IsWord(before)
		if inWord != words.IsWord(rune(text[s])) {
			return s
		}
	}
	return -1
}

// notGlobal are the networks that Python's ipaddress calls private or shared, and which of them it excepts.
var (
	notGlobal = networks("0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 " +
		"192.0.2.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4")
	stillGlobal = networks("192.0.0.9/32 192.0.0.10/32")
)

func networks(list string) (out []netip.Prefix) {
	for _, s := range strings.Fields(list) {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// isIP says whether a text is an address that is replaced: one without leading zeros, and a public one if
// only those are.
func isIP(s string, public bool) bool {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return false
	}
	in := func(list []netip.Prefix) bool {
		for _, n := range list {
			if n.Contains(a) {
				return true
			}
		}
		return false
	}
	return !public || !in(notGlobal) || in(stillGlobal)
}
