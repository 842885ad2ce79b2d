package deploy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/exit"
)

// TestHostsNotice: what says that hosts are taken back is told to the agent of each: its own, or that of all. What is neither
// a path nor an address is refused with the host's name.
func TestHostsNotice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts.yaml")
	read := func(text string) (HostsFile, error) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return ReadHosts(file)
	}
	h, err := read("notice: http://metadata/preempted\nhosts:\n  - {ssh: a, notice: /run/spot, ports: 7400-7410}\n  - ssh: b\n")
	require.NoError(t, err)
	require.Equal(t, []string{"--ports", "7400-7410", "--notice", "/run/spot"}, h.Hosts[0].args())
	require.Equal(t, []string{"--ports", "", "--notice", "http://metadata/preempted"}, h.Hosts[1].args())
	_, err = read("hosts: [{ssh: a}, {ssh: me@b, notice: spot}]\n")
	require.ErrorContains(t, err, `host b: notice: "spot": want an http address, or the absolute path of a file`)
	require.Equal(t, exit.Usage, err.(exit.Error).ExitCode())
}
