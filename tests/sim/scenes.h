/* The tables of scenarios. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_SCENES_H
#define HEADPOND_SCENES_H

#include "tests/sim/stage.h"

/* each ends with a nameless one */
extern const struct scene scenes_object[], scenes_write[], scenes_lists[], scenes_other[],
    scenes_jobs[];

#endif
