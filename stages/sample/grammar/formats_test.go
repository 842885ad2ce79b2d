package grammar

import (
	"math/rand/v2"
	"net/mail"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFormats: 200 texts that are drawn in each format are of it, as other packages read them, and others are not
// there to be drawn.
func TestFormats(t *testing.T) {
	reads := map[string]func(s string) bool{
		"email":     func(s string) bool { a, err := mail.ParseAddress(s); return err == nil && a.Address == s },
		"ipv4":      func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is4() },
		"ipv6":      func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is6() },
		"uri":       func(s string) bool { u, err := url.Parse(s); return err == nil && u.Host != "" && u.IsAbs() },
		"hostname":  func(s string) bool { return len(s) < 254 && !strings.Contains(s, "..") && !strings.Contains(s, "-.") },
		"duration":  func(s string) bool { return s[0] == 'P' && len(s) > 2 && !strings.HasSuffix(s, "T") },
		"date":      func(s string) bool { _, err := time.Parse(time.DateOnly, s); return err == nil },
		"date-time": func(s string) bool { _, err := time.Parse(time.RFC3339Nano, s); return err == nil },
		"time":      func(s string) bool { _, err := time.Parse("15:04:05.999999Z07:00", s); return err == nil },
		"uuid":      func(s string) bool { return len(s) == 36 && strings.Count(s, "-") == 4 },
	}
	require.Len(t, reads, len(formats))
	r := rand.New(rand.NewPCG(1, 9))
	for name, ok := range reads {
		g, err := Schema([]byte(`{"type": "string", "format": "` + name + `"}`))
		require.NoError(t, err)
		for range 200 {
			at, text := NewMachine(g).Start(), []byte{}
			for !at.Ends() || !at.Complete() && r.IntN(3) > 0 {
				c := byte(' ' + r.IntN(95))
				if next := at.After(c); next != nil {
					at, text = next, append(text, c)
				}
			}
			s := strings.Trim(string(text), `"`)
			require.True(t, ok(s), "%s: %s", name, s)
		}
		require.False(t, is(g, `"`+name+` "`))
		require.False(t, is(g, `""`))
	}
	_, err := Schema([]byte(`{"type": "string", "format": "regex"}`))
	require.ErrorContains(t, err, "none of date, date-time, duration, email")
}
