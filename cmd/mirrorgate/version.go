package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is what `make build` says it built (git describe), for builds that carry no version control information.
var version string

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit and the Go version",
		Example: "  mirrorgate version",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, ok := debug.ReadBuildInfo()
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText(version, info, ok))
			return err
		},
	}
}

// versionText describes a build in one line: version (the module's, if the build gave none), commit (with a + where the
// tree had changes), Go version.
func versionText(version string, info *debug.BuildInfo, ok bool) string {
	commit, modified := "unknown", ""
	if version == "" {
		version = "unknown"
		if ok {
			version = info.Main.Version
		}
	}
	if ok {
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				commit = setting.Value
			case setting.Key == "vcs.modified" && setting.Value == "true":
				modified = "+"
			}
		}
	}
	return fmt.Sprintf("mirrorgate %s, commit %s%s, %s %s/%s", version, commit, modified, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
