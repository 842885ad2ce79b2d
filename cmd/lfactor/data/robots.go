package data

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/topology/machine"
)

const robotsHelp = `PATH is a folder of RLDS, or files of HDF5 or MCAP (bags of ROS 2), as a policy learns of them too: docs/policies.md. What is written
has the state, the action and every camera, as observation.state, action and the camera's own name, with pictures as they are.`

// dataRobots writes recordings as a data set of LeRobot.
func dataRobots() *cobra.Command {
	var keys dataset.RobotKeys
	c := &cobra.Command{Use: "robots PATH --to FOLDER",
		Short: "Write recordings of robots as a LeRobot data set", Long: robotsHelp,
		Example: "  lfactor data robots bags --to my-robot --action arm.command --state joint_states --fps 30", Args: cobra.ExactArgs(1)}
	f := c.Flags()
	to := f.String("to", "", "folder that gets the data set; a new one")
	f.StringVar(&keys.Action, "action", "action", "column that has the actions, as policy.action_key")
	f.StringVar(&keys.State, "state", "observation.state", "column that has the state, as policy.state_key")
	f.Float64Var(&keys.FPS, "fps", 10, "frames a second: bags are brought to them, and others are said to have them")
	f.StringArrayVar(&keys.Cameras, "camera", nil,
		"camera that is written, as observation.images.top; may be given several times, and all are without")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *to == "" {
			return exit.Usagef("--to: name a new folder")
		}
		if !(keys.FPS >= 0.01 && keys.FPS <= 1000) {
			return exit.Usagef("--fps %g: want frames a second from 0.01 to 1000", keys.FPS)
		}
		if !machine.Exists(args[0]) {
			return exit.Usagef("%s: there is no such file or folder", args[0])
		}
		r, err := recordings.ConvertRobots(c.Context(), args[0], *to, keys, keys.FPS)
		if c.Context().Err() != nil {
			return exit.With(errors.New("interrupted: nothing was written"), exit.Interrupted)
		}
		if errors.Is(err, dataset.ErrNoTokens) {
			return exit.With(err, exit.Data)
		}
		if err != nil {
			return err
		}
		return cli.Emit(c, r, func(w io.Writer) {
			fmt.Fprintf(w, "%s: %d episodes of %d frames; cameras: %s\n", r.Folder, r.Episodes, r.Frames,
				strings.Join(r.Cameras, ", "))
			for _, why := range r.Aside {
				fmt.Fprintf(w, "set aside: %s\n", why)
			}
			for _, why := range r.Left {
				fmt.Fprintf(w, "not read: %s\n", why)
			}
		})
	}
	return c
}
