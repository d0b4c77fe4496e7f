package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher/internal/initd"
)
