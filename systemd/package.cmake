# A Debian package: `cpack -G DEB` in a build, or `make deb`.
set(CPACK_PACKAGE_NAME trajd)
string(REPLACE .dev ~dev CPACK_DEBIAN_PACKAGE_VERSION ${TRAJD_VERSION}) # before the release, as Debian sorts
set(CPACK_PACKAGE_CONTACT "trajd developers <trajd@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "data-loading and preprocessing daemon for robot learning")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# libtrajd and libtrajd_kernels are in the package
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/clients/c ${PROJECT_BINARY_DIR}/kernels/library)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS systemd)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
  ${PROJECT_SOURCE_DIR}/systemd/debian/postinst ${PROJECT_SOURCE_DIR}/systemd/debian/prerm
  ${PROJECT_SOURCE_DIR}/systemd/debian/postrm ${PROJECT_SOURCE_DIR}/systemd/debian/triggers)
set(CPACK_STRIP_FILES ON)
include(CPack)
