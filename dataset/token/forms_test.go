package token

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
)

// Normal forms are those of the library, whose tables are older than Go's: marks that it does not know stay
// where they are. bench/golden/token_forms.py writes the strings.
func TestForms(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/forms.json")
	require.NoError(t, err)
	var golden [][5]string
	require.NoError(t, json.Unmarshal(b, &golden))
	require.Greater(t, len(golden), 400)
	for i, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
		for _, g := range golden {
			require.Equal(t, g[1+i], unicodeForm(form)(g[0]), "form %d of %+q", i, g[0])
		}
	}
	require.Equal(t, "\u08fe\u0d3c", unicodeForm(norm.NFC)("\u08fe\u0d3c"))
}
