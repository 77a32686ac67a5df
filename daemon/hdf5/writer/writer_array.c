/* Creates the datasets that the frame DATASETS lists. Types, dataspaces and property lists are made
 * once for all episodes: in libhdf5 they take as long as a dataset. */
#include <stdlib.h>
#include <string.h>

#include "daemon/hdf5/writer/writer.h"
#include "proto/dtype.h"

enum { LIST_MAX = 1 << 20 };

/* ---- types ---- */

static hid_t half_type(void)
{
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);

    if (H5Tset_fields(type, 15, 10, 5, 0, 10) < 0 || H5Tset_size(type, 2) < 0 ||
        H5Tset_ebias(type, 15) < 0) {
        H5Tclose(type);
        return -1;
    }
    return type;
}

/* Returns the file type of one of our element types, which the caller closes; -1 where HDF5 has
 * none. */
static hid_t file_type(enum trajd_dtype dtype)
{
    switch (dtype) {
    case TRAJD_F16:
        return half_type();
    case TRAJD_F32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case TRAJD_F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case TRAJD_I8:
        return H5Tcopy(H5T_STD_I8LE);
    case TRAJD_I16:
        return H5Tcopy(H5T_STD_I16LE);
    case TRAJD_I32:
        return H5Tcopy(H5T_STD_I32LE);
    case TRAJD_I64:
        return H5Tcopy(H5T_STD_I64LE);
    case TRAJD_U8:
        return H5Tcopy(H5T_STD_U8LE);
    case TRAJD_U16:
        return H5Tcopy(H5T_STD_U16LE);
    case TRAJD_U32:
        return H5Tcopy(H5T_STD_U32LE);
    case TRAJD_U64:
        return H5Tcopy(H5T_STD_U64LE);
    default:
        return -1;
    }
}

/* ---- recipe ---- */

static hid_t creation_of(const struct trajd_writer_dataset *dataset)
{
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);

    H5Pset_obj_track_times(creation, 0);
    if (!dataset->chunk[0]) {
        H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);
        H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
        return creation;
    }
    H5Pset_chunk(creation, dataset->rank, dataset->chunk);
    if (trajd_dtype_size((enum trajd_dtype)dataset->dtype) > 1)
        H5Pset_shuffle(creation);
    H5Pset_deflate(creation, dataset->level);
    return creation;
}

static bool read_dataset(struct trajd_writer_dataset *dataset, struct trajd_writer_frame *frame)
{
    char path[TRAJD_WRITER_PATH_SIZE];

    trajd_writer_text(frame, path, sizeof path);
    dataset->dtype = trajd_writer_u8(frame);
    dataset->rank = trajd_writer_u8(frame);
    if (frame->failed || dataset->rank > TRAJD_WRITER_RANK_MAX)
        return false;
    dataset->path = strdup(path);
    if (!dataset->rank || !dataset->path)
        return dataset->path != NULL;
    dataset->shape[0] = 1;
    for (uint8_t d = 1; d < dataset->rank; d++)
        dataset->shape[d] = trajd_writer_u64(frame);
    for (uint8_t d = 0; d < dataset->rank; d++)
        dataset->chunk[d] = trajd_writer_u64(frame);
    dataset->chunk_rows = dataset->chunk[0];
    dataset->level = trajd_writer_u8(frame);
    if (frame->failed)
        return false;
    dataset->type = dataset->dtype == TRAJD_BOOL ? -1 : file_type((enum trajd_dtype)dataset->dtype);
    dataset->space = H5Screate_simple(dataset->rank, dataset->shape, NULL);
    dataset->creation = creation_of(dataset);
    return dataset->space >= 0 && dataset->creation >= 0 &&
           (dataset->type >= 0 || dataset->dtype == TRAJD_BOOL);
}

bool trajd_writer_datasets(struct trajd_writer *writer, struct trajd_writer_frame *frame)
{
    const uint32_t count = trajd_writer_u32(frame);

    if (writer->datasets || frame->failed || count > LIST_MAX)
        return trajd_writer_fail("the recipe's datasets cannot be read");
    writer->datasets = calloc((size_t)count + 1, sizeof *writer->datasets);
    for (; writer->datasets && writer->dataset_count < count; writer->dataset_count++)
        if (!read_dataset(&writer->datasets[writer->dataset_count], frame))
            return trajd_writer_fail("a dataset of the recipe cannot be read");
    return writer->datasets || trajd_writer_fail("no memory for the recipe");
}

void trajd_writer_clear_datasets(struct trajd_writer *writer)
{
    for (uint32_t i = 0; writer->datasets && i < writer->dataset_count; i++)
        free(writer->datasets[i].path);
    free(writer->datasets);
}

/* ---- one dataset of an episode ---- */

/* Sets the dataspace and the chunks for `rows` rows. */
static bool set_rows(struct trajd_writer_dataset *dataset, uint64_t rows)
{
    const hsize_t chunk_rows = dataset->chunk_rows < rows ? dataset->chunk_rows : rows;

    if (dataset->shape[0] != rows) {
        dataset->shape[0] = rows;
        if (H5Sset_extent_simple(dataset->space, dataset->rank, dataset->shape, NULL) < 0)
            return false;
    }
    if (dataset->chunk[0] == chunk_rows || !dataset->chunk_rows)
        return true;
    dataset->chunk[0] = chunk_rows;
    return H5Pset_chunk(dataset->creation, dataset->rank, dataset->chunk) >= 0;
}

hid_t trajd_writer_open_source(hid_t from, const char *path)
{
    const hid_t source = H5Dopen2(from, path, H5P_DEFAULT);

    if (source < 0)
        H5Eclear2(H5E_DEFAULT);
    return source;
}

bool trajd_writer_make_dataset(struct trajd_writer *writer, struct trajd_writer_dataset *dataset,
                               const struct trajd_writer_place *place, uint64_t *offset)
{
    const char *slash = strrchr(dataset->path, '/');
    const bool needs_source = place->has_attributes || dataset->type < 0;
    const hid_t source = needs_source ? trajd_writer_open_source(place->from, dataset->path) : -1;
    const hid_t own_type = dataset->type < 0 && source >= 0 ? H5Dget_type(source) : -1;
    const hid_t type = dataset->type < 0 ? own_type : dataset->type;
    haddr_t address = HADDR_UNDEF;
    hid_t made = -1;

    if (type >= 0 && set_rows(dataset, place->rows))
        made = H5Dcreate2(place->to, slash ? slash + 1 : dataset->path, type, dataset->space,
                          H5P_DEFAULT, dataset->creation, H5P_DEFAULT);
    if (made >= 0 && source >= 0 && place->has_attributes)
        trajd_writer_copy_attributes(writer, source, made, dataset->path);
    if (made >= 0 && !dataset->chunk_rows)
        address = H5Dget_offset(made);
    *offset = address == HADDR_UNDEF ? UINT64_MAX : address;
    if (made < 0 || (!dataset->chunk_rows && address == HADDR_UNDEF))
        trajd_writer_fail(dataset->path);
    if (made >= 0)
        H5Dclose(made);
    if (own_type >= 0)
        H5Tclose(own_type);
    if (source >= 0)
        H5Dclose(source);
    return made >= 0 && (dataset->chunk_rows || address != HADDR_UNDEF);
}
