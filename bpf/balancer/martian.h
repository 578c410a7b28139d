/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Addresses that no client has, and to which nothing must be answered. */
#ifndef FAIRLEAD_BALANCER_MARTIAN_H
#define FAIRLEAD_BALANCER_MARTIAN_H

#include "fullnat.h"

#endif
