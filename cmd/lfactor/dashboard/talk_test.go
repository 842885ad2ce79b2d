package dashboard

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// closing is a model that tells when it is closed.
type closing chan struct{}

func (closing) ServeHTTP(http.ResponseWriter, *http.Request) {}
func (c closing) Close()                                     { close(c) }

// TestTalksTurn: another run's model is opened while one answers, which is closed when it has answered; a run is never
// answered for by another's model.
func TestTalksTurn(t *testing.T) {
	var opened []closing
	talks := &talks{open: func(string) (Talked, error) {
		opened = append(opened, make(closing))
		return opened[len(opened)-1], nil
	}}
	a, b := &folder{}, &folder{}
	require.Nil(t, talks.begin(a))
	require.NoError(t, talks.show(a, "a", "a at step 1"))
	require.NoError(t, talks.show(a, "a", "a at step 1"))
	require.Len(t, opened, 1)
	answer := talks.begin(a)
	require.NotNil(t, answer)
	require.Nil(t, talks.begin(b))
	require.NoError(t, talks.show(b, "b", "b at step 1"))
	require.Nil(t, talks.begin(a))
	select {
	case <-opened[0]:
		require.Fail(t, "closed while it answers")
	default:
	}
	answer.answers.RUnlock()
	<-opened[0]
	require.NoError(t, talks.show(b, "b", "b at step 2"))
	<-opened[1]
	require.Len(t, opened, 3)
}
