/* A series drawn: as SVG, or in dots on a terminal. */
#ifndef TRAJD_CLI_PLOT_H
#define TRAJD_CLI_PLOT_H

#include <stdio.h>

#include "clients/cli/resample/convert_series.h"

/* Recorded rows as points, resampled ones as a line, a colour a feature. */
void plot_svg(FILE *file, const struct convert_series *series, const char *title);
/* Resampled as dots of braille, recorded ends in the frame's scale; `columns` wide. */
void plot_terminal(FILE *file, const struct convert_series *series, const char *title, int columns);

#endif
