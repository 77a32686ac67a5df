/* Draws a series with characters on a terminal. */
#ifndef TRAJD_CLI_PLOT_H
#define TRAJD_CLI_PLOT_H

#include <stdio.h>

#include "clients/cli/resample/convert_series.h"

/* Draws recorded and resampled values as Braille dots. `columns` is the width of the plot in
 * characters, scale included. */
void plot_terminal(FILE *file, const struct convert_series *series, const char *title, int columns);

#endif
